"""Short words for what a scripted model says."""

import json
from collections.abc import Sequence

from jail.wire.schema import Agent, Body, ChatCall, ChatDelta, ChatEnd, Limits, ToolCall, Usage
from tests.fakes.core_end import Answer

ALL_TOOLS = (
    "list_files",
    "read_file",
    "write_file",
    "edit_file",
    "search_files",
    "run_command",
    "run_python",
    "http_fetch",
    "show_picture",
)


def agent(*tools: str, **limits: int) -> Agent:
    """An agent with these tools (all by default)."""
    return Agent("assistant", "You are a test.", "fake", "model", tools or ALL_TOOLS, Limits(**limits))


def call(name: str, call_id: str = "c1", **arguments: object) -> ChatCall:
    """A tool call."""
    return ChatCall(ToolCall(call_id, name, json.dumps(arguments)))


def say(*pieces: str) -> Answer:
    """An answer without calls."""
    return Answer([ChatDelta(piece) for piece in pieces], ChatEnd("stop", Usage(1, 1)))


def use(*calls: ChatCall, before: Sequence[Body] = ()) -> Answer:
    """An answer with calls."""
    return Answer([*before, *calls], ChatEnd("tool_calls", Usage(1, 1)))
