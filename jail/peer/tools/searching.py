"""search_files: a regular expression over files, in a process of its own.

Python's expressions can take for ever on a hostile pattern and cannot be interrupted, so the
search is a program that is killed when its time is up.
"""

import os
import sys
from typing import Annotated

import msgspec
from msgspec import Meta

from jail.peer.errors import ToolFailed
from jail.peer.texts import clean
from jail.peer.tools.base import Arguments, Surroundings, Tool, ToolResult
from jail.peer.tools.paths import locate

_TIMEOUT_S = 20.0
_MAX_PATTERN = 4_096
_OUTPUT_BYTES = 256 * 1024


class SearchArguments(Arguments, frozen=True):
    pattern: Annotated[
        str, Meta(min_length=1, max_length=_MAX_PATTERN, description="Python regular expression.")
    ]
    path: Annotated[str, Meta(description="File or directory; the home by default.")] = "."
    glob: Annotated[str, Meta(max_length=256, description="Only files whose name matches, such as *.py.")] = (
        "*"
    )
    ignore_case: Annotated[bool, Meta(description="Upper and lower case are the same.")] = False


async def _search(arguments: SearchArguments, around: Surroundings) -> ToolResult:
    full = locate(around.home, arguments.path)
    if not os.path.lexists(full):
        raise ToolFailed(f"There is no {clean(arguments.path)}. list_files shows what there is.")
    job = msgspec.json.encode(
        {
            "pattern": arguments.pattern,
            "path": full,
            "home": around.home,
            "glob": arguments.glob,
            "ignore_case": arguments.ignore_case,
        }
    ).decode()
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "search_program.py")
    output = bytearray()

    def take(data: bytes) -> bool:
        output.extend(data)
        return len(output) <= _OUTPUT_BYTES

    timeout_s = min(around.timeout_s, _TIMEOUT_S)
    argv = [sys.executable, "-I", "-S", program, job]
    outcome = await around.children.run(argv, around.home, timeout_s, take)
    text = bytes(output[:_OUTPUT_BYTES]).decode("utf-8", "replace")
    if outcome.timed_out:
        note = f"[stopped after {timeout_s:g} s: take a simpler pattern or fewer files]"
        return ToolResult(False, text + note)
    if outcome.status == 2:
        raise ToolFailed(text.strip())
    if outcome.status != 0:
        return ToolResult(False, f"{text}[the search ended with status {outcome.status}]")
    return ToolResult(True, text or "[no match]")


SEARCH_FILES = Tool(
    "search_files",
    "Search files line by line for a regular expression. Binary files are skipped. Answers with"
    " FILE:LINE: TEXT.",
    SearchArguments,
    _search,
)
