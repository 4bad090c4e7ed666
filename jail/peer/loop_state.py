"""When a turn ends before the model ends it: the limits, counted. Pure.

Core counts rounds, tokens and time as well, since a worker is not trusted; here they end a turn
in good order.
"""

import json
from typing import Literal, NamedTuple

from jail.wire.schema import Limits, Usage

Finish = Literal["stop", "length", "rounds", "repeats", "failing", "wall", "content_filter"]

_BYTES_PER_TOKEN = 4  # where the provider counts nothing


class Stop(NamedTuple):
    """The turn is to end: how, and the sentence that tells the person why ("" needs none)."""

    finish: Finish
    notice: str


class LoopState:
    """The counts of one turn."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._rounds = 0
        self._failing = 0
        self._last_call = ""
        self._in_a_row = 0
        self._same: dict[str, tuple[int, int]] = {}
        self.usage = Usage()

    def next_round(self) -> Stop | None:
        """Before the model is asked: start a round, or stop."""
        limits = self._limits
        if self._failing >= limits.failing_rounds:
            return Stop("failing", f"Stopped: every tool call failed {self._failing} rounds in a row.")
        if self._rounds >= limits.rounds:
            return Stop("rounds", f"Stopped at the limit of {limits.rounds} rounds.")
        if self.usage.output_tokens >= limits.output_tokens:
            return Stop("length", f"Stopped at the limit of {limits.output_tokens} output tokens.")
        self._rounds += 1
        return None

    def add_usage(self, usage: Usage, output_bytes: int) -> None:
        """After the model's message: its tokens, or an estimate from what it wrote."""
        output = usage.output_tokens or -(-output_bytes // _BYTES_PER_TOKEN)
        self.usage = Usage(self.usage.input_tokens + usage.input_tokens, self.usage.output_tokens + output)

    def before_call(self, name: str, arguments: str) -> Stop | None:
        """Before a tool acts: stop if it is the same call once more than ``repeats``.

        The same call counts when it comes in a row, or had the same result each time: running the
        tests again after an edit is no repetition.
        """
        key = _key(name, arguments)
        same = self._same.get(key, (0, 0))[1]
        in_a_row = self._in_a_row if key == self._last_call else 0
        if max(same, in_a_row) < self._limits.repeats:
            return None
        return Stop("repeats", f"Stopped: {name[:64]} was called again and again the same way.")

    def after_call(self, name: str, arguments: str, result: str) -> None:
        """After a tool acted (or was refused): remember the call and its result."""
        key = _key(name, arguments)
        self._in_a_row = self._in_a_row + 1 if key == self._last_call else 1
        self._last_call = key
        digest = hash(result)
        last_digest, count = self._same.get(key, (digest, 0))
        self._same[key] = (digest, count + 1 if digest == last_digest else 1)

    def end_round(self, calls: int, failed: int) -> None:
        """After a round's tools: whether any of them succeeded."""
        self._failing = self._failing + 1 if calls and failed == calls else 0


def _key(name: str, arguments: str) -> str:
    """The call's identity; spelling of the JSON does not matter."""
    try:
        arguments = json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        pass  # not JSON: the text itself is what was repeated
    return f"{name}\0{arguments}"
