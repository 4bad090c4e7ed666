"""A round in the making: what the model said and what its tools answered, ready to be kept. Pure."""

from msgspec.structs import replace

from jail.peer.context import cost_bytes
from jail.peer.texts import size
from jail.wire.schema import Message, Picture, ToolCall, cut_short

MAX_MESSAGE_BYTES = 400_000
"""One message of a model; it has to fit a frame beside its tools' results."""
MAX_CALLS = 64  # the schema's bound on Message.tool_calls
_BATCH_BYTES = 600_000
_BATCH_MESSAGES = 64


class Draft:
    """The model's message as it comes, and the results of its calls."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self.calls: list[ToolCall] = []
        self.results: list[Message] = []
        self.bytes = 0
        self.begun = 0  # calls that were begun, in order

    @property
    def text(self) -> str:
        """What the model has said so far."""
        return "".join(self._pieces)

    @property
    def spoken(self) -> bool:
        """Whether it has any text."""
        return bool(self._pieces)

    def add_text(self, text: str) -> None:
        """Add a piece of the answer."""
        if text:
            self._pieces.append(text)
            self.bytes += size(text)

    def add_call(self, call: ToolCall) -> None:
        """Add a tool call; an id that is empty or taken gets one of our own."""
        taken = {known.id for known in self.calls}
        if not call.id or call.id in taken:
            # one of these is free: there are more of them than ids taken
            names = (f"call_{number}" for number in range(len(taken) + 1))
            call = replace(call, id=next(name for name in names if name not in taken))
        self.calls.append(call)
        self.bytes += size(call.arguments) + size(call.name)

    @property
    def full(self) -> bool:
        """Whether the message has grown past what one may be."""
        return self.bytes > MAX_MESSAGE_BYTES or len(self.calls) > MAX_CALLS

    def add_result(self, call: ToolCall, text: str, picture: Picture | None = None) -> None:
        """Add a call's result, and what it has shown."""
        self.results.append(Message("tool", text, tool_call_id=call.id, picture=picture))

    def whole(self) -> list[Message]:
        """The messages of a round that came to its end; none where the model said nothing."""
        if not self._pieces and not self.calls:
            return []
        return [Message("assistant", self.text, tuple(self.calls)), *self.results]

    def cut_short(self, why: str) -> list[Message]:
        """The messages of a round that did not: the text marked, calls without result answered.

        Where no call was begun, all are left out: the model had not finished speaking.
        """
        if not self.begun:
            text = self.text
            return [Message("assistant", cut_short(text, why))] if text else []
        fill = [
            Message("tool", f"[{_fate(n < self.begun)}: {why}]", tool_call_id=call.id)
            for n, call in enumerate(self.calls)
            if n >= len(self.results)
        ]
        return [Message("assistant", self.text, tuple(self.calls)), *self.results, *fill]


def _fate(begun: bool) -> str:
    return "cut short, part of it may have been done" if begun else "not run"


def batches(messages: list[Message]) -> list[list[Message]]:
    """The same messages in order, in groups that one session.append can carry."""
    groups: list[list[Message]] = []
    room = 0
    for message in messages:
        cost = cost_bytes(message)
        if not groups or cost > room or len(groups[-1]) >= _BATCH_MESSAGES:
            groups.append([])
            room = _BATCH_BYTES
        groups[-1].append(message)
        room -= cost
    return groups
