"""run_command and run_python: a program in a session of its own, with a time limit."""

import asyncio
import os
import signal
import sys
from typing import Annotated

from msgspec import Meta

from jail.peer.errors import ToolFailed
from jail.peer.tools.base import Arguments, Surroundings, Tool, ToolResult
from jail.peer.tools.capture import Capture

_MAX_COMMAND_BYTES = 100_000  # one argument of a program may be 128 kB (execve(2), MAX_ARG_STRLEN)


class CommandArguments(Arguments, frozen=True):
    command: Annotated[str, Meta(min_length=1, description="A command line for sh.")]
    timeout_s: Annotated[
        int, Meta(ge=0, description="Seconds it may take; 0: the agent's limit, which holds anyway.")
    ] = 0


class PythonArguments(Arguments, frozen=True):
    code: Annotated[str, Meta(min_length=1, description="A Python program; print what you need.")]
    timeout_s: Annotated[
        int, Meta(ge=0, description="Seconds it may take; 0: the agent's limit, which holds anyway.")
    ] = 0


async def _run_command(arguments: CommandArguments, around: Surroundings) -> ToolResult:
    if "\0" in arguments.command:
        raise ToolFailed("A command cannot contain NUL characters.")
    if len(arguments.command.encode()) > _MAX_COMMAND_BYTES:
        raise ToolFailed("The command is too long: write a script with write_file and run that.")
    return await _run(["/bin/sh", "-c", arguments.command], arguments.timeout_s, around)


async def _run_python(arguments: PythonArguments, around: Surroundings) -> ToolResult:
    # not tempfile: importing it loads compression and random numbers into every worker
    script = f"/tmp/certosa-{os.urandom(8).hex()}.py"  # noqa: S108 - the jail's own /tmp, O_EXCL
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(script, flags, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(arguments.code.encode())
        return await _run([sys.executable, "-I", "-u", script], arguments.timeout_s, around)
    finally:
        os.unlink(script)


async def _run(argv: list[str], wanted_s: int, around: Surroundings) -> ToolResult:
    timeout_s = min(around.timeout_s, wanted_s) if wanted_s else around.timeout_s
    capture = Capture(around.progress, asyncio.get_running_loop().time)
    named = {"CERTOSA_REQUEST_ID": around.request} if around.request else None
    outcome = await around.children.run(argv, around.home, timeout_s, capture.take, named)
    capture.say_rest()
    text = capture.text()
    if text and not text.endswith("\n"):
        text += "\n"
    if outcome.flooded:
        return ToolResult(False, f"{text}[ended: it wrote too much output]")
    if outcome.timed_out:
        return ToolResult(False, f"{text}[ended: it took longer than {timeout_s:g} s]")
    if outcome.status < 0:
        return ToolResult(False, f"{text}[ended by {_signal_name(-outcome.status)}]")
    return ToolResult(outcome.status == 0, f"{text}[exit status {outcome.status}]")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


RUN_COMMAND = Tool(
    "run_command",
    "Run a command line with sh in the home directory. It has no input; its output and its exit"
    " status are returned. What it leaves running in the background ends with it, unless started"
    " with setsid.",
    CommandArguments,
    _run_command,
)
RUN_PYTHON = Tool(
    "run_python",
    "Run a Python program in the home directory, with the standard library alone. What it prints"
    " and its exit status are returned.",
    PythonArguments,
    _run_python,
)
