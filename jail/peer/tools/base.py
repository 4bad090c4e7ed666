"""What a tool is: a name, a description, a struct of arguments, and what it does."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple, Protocol

import msgspec

from jail.peer.children import Children
from jail.peer.edge import Request
from jail.wire.schema import Body, Limits, Picture, ToolSpec


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What every tool's arguments are made of; the JSON Schema the model sees comes from it."""


class ToolResult(NamedTuple):
    """What the model gets, whether the tool did what it was asked, and what the user is to be shown."""

    ok: bool
    text: str
    picture: Picture | None = None


class Outside(Protocol):
    """The way out, for a turn: core decides what goes it."""

    @property
    def turn(self) -> str:
        """The turn's id."""
        ...

    async def ask(self, body: Body, timeout_s: float) -> Body:
        """One question, one answer; raises AskFailed."""
        ...

    async def stream(self, body: Body, silence_s: float) -> Request:
        """A request whose items are iterated."""
        ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where a tool acts.

    Args:
        home: the directory that relative paths start from.
        children: starts and ends processes.
        progress: takes output of a running tool for the person who watches; never waits.
        timeout_s: how long one call may take.
        outside: the way out; None where there is none.
        result_bytes: past this a result is stored as a file; a tool that can, answers with less.
        request: the id of what the turn was asked for by; programs have it as CERTOSA_REQUEST_ID.
    """

    home: str
    children: Children
    progress: Callable[[str], None] = lambda _: None
    timeout_s: float = 120.0
    result_bytes: int = 32_768
    outside: Outside | None = None
    request: str = ""

    def for_step(self, progress: Callable[[str], None], limits: Limits) -> "Surroundings":
        """The same with one step's output and the turn's limits."""
        return replace(
            self, progress=progress, timeout_s=float(limits.tool_s), result_bytes=limits.tool_result_bytes
        )


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool. ``run`` takes an instance of ``arguments``; it raises ToolFailed with a sentence
    that tells the model what to do, or OSError."""

    name: str
    description: str
    arguments: type[Arguments]
    run: Callable[[Any, Surroundings], Awaitable[ToolResult]]


@cache
def spec_of(tool: Tool) -> ToolSpec:
    """The tool as models are told of it."""
    (_,), definitions = msgspec.json.schema_components([tool.arguments])
    schema = definitions[tool.arguments.__name__]
    schema.pop("title", None)
    return ToolSpec(tool.name, tool.description, json.dumps(schema))


def in_thread(
    work: Callable[[Any, Surroundings], ToolResult],
) -> Callable[[Any, Surroundings], Awaitable[ToolResult]]:
    """A tool's blocking file work as its ``run``: a slow disk holds no other turn up.

    Cancelling leaves the thread to its end, which the work's own bounds bring soon.
    """

    async def run(arguments: Any, around: Surroundings) -> ToolResult:
        try:
            async with asyncio.timeout(around.timeout_s):
                return await asyncio.to_thread(work, arguments, around)
        except TimeoutError:
            return ToolResult(False, f"This took longer than {around.timeout_s:g} s. Ask for less.")

    return run
