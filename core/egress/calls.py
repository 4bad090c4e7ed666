"""What the answers of both wire formats have in common: bounded calls, counts, and how an answer ends."""

import secrets
from collections.abc import Sequence
from typing import Literal

import msgspec

from core.egress.providers import ProviderError
from jail.wire.schema import ChatEnd, ToolCall, Usage

MAX_CALLS = 64
MAX_ARGUMENT_CHARACTERS = 128 << 10
"""Of one call; even where each character takes four bytes, it fits a jail's frame (1 MiB)."""
MAX_NAME = 128
UNNAMED = "unnamed_tool"
"""Stands for a name the model left out: no tool has it, so the model is told that there is none."""
_MAX_ID = 128
_MAX_COUNT = 2**53

Finish = Literal["stop", "tool_calls", "length", "content_filter"]


class Bounds:
    """The bounds on one answer's calls; ``provider`` is its name, for messages."""

    def __init__(self, provider: str) -> None:
        self._provider = provider

    def one_more(self, calls: int) -> None:
        """Raises ProviderError where there are that many calls and another begins."""
        if calls >= MAX_CALLS:
            raise ProviderError(
                "upstream", f"{self._provider} asked for more than {MAX_CALLS} tools at once."
            )

    def length(self, characters: int) -> None:
        """Raises ProviderError where a call's arguments have so many characters."""
        if characters > MAX_ARGUMENT_CHARACTERS:
            raise ProviderError(
                "upstream",
                f"{self._provider} sent a tool call with more than {MAX_ARGUMENT_CHARACTERS}"
                " characters of arguments. Ask for smaller steps.",
            )

    def whole(self, is_whole: bool) -> None:
        """Raises ProviderError where the answer was cut."""
        if not is_whole:
            raise ProviderError(
                "upstream",
                f"{self._provider} broke off: the answer was cut before its end. Try again.",
                again="retry",
            )


def ending(finish: Finish, calls: Sequence[ToolCall], usage: Usage) -> tuple[list[ToolCall], ChatEnd]:
    """The calls that may act, and the end as it then is."""
    kept = list(calls)
    if finish in ("length", "content_filter"):
        # a call that was cut short must not act; one that is whole JSON was not
        kept = [call for call in kept if is_json(call.arguments)]
    elif kept:
        finish = "tool_calls"
    elif finish == "tool_calls":
        finish = "stop"
    return kept, ChatEnd(finish, usage)


def call_id(given: str, taken: set[str]) -> str:
    """A call's id: the upstream's, or a new one where it is missing, too long or taken; then taken."""
    if not given or len(given) > _MAX_ID or given in taken:
        given = f"call_{secrets.token_hex(8)}"
    taken.add(given)
    return given


def count(value: int | None) -> int:
    """A number of tokens as the wire takes it."""
    return min(max(value or 0, 0), _MAX_COUNT)


def is_json(text: str) -> bool:
    """Whether a text is whole JSON."""
    try:
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True
