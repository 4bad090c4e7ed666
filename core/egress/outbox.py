"""What a stream has to say and may not say yet. Pure: items in, items that may go now out."""

from collections import deque
from collections.abc import Iterator

from jail.wire.connection import STREAM_WINDOW
from jail.wire.schema import ChatCall, ChatDelta

MAX_PIECE_CHARACTERS = 64 << 10
"""A delta's text is at most this long: a quarter of a jail's frame at the worst."""
MAX_PENDING_CHARACTERS = 64 << 10
"""With more than this waiting the upstream is no longer read."""
_CALL_COST = 256

Item = ChatDelta | ChatCall


class _Waiting:
    """Deltas of one kind that became one while they waited; parts, so that adding is cheap."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.parts: list[str] = []
        self.characters = 0

    def item(self) -> ChatDelta:
        text = "".join(self.parts)
        return ChatDelta(text=text) if self.kind == "text" else ChatDelta(reasoning=text)


class Outbox:
    """One stream's items, in order, within its credit.

    Items go at once while there is credit and the way is open; otherwise neighbouring deltas of
    the same kind merge. Each method that may free something returns what has to be sent now.
    """

    def __init__(self, credit: int = STREAM_WINDOW) -> None:
        self._credit = credit
        self._open = True
        self._waiting: deque[_Waiting | ChatCall] = deque()
        self._characters = 0

    @property
    def empty(self) -> bool:
        """Whether everything has gone."""
        return not self._waiting

    @property
    def full(self) -> bool:
        """Whether so much waits that no more should be brought."""
        return self._characters > MAX_PENDING_CHARACTERS

    def text(self, text: str) -> list[Item]:
        """Add a piece of the answer."""
        return self._add("text", text)

    def reasoning(self, text: str) -> list[Item]:
        """Add a piece of the reasoning."""
        return self._add("reasoning", text)

    def call(self, call: ChatCall) -> list[Item]:
        """Add a whole call."""
        self._waiting.append(call)
        self._characters += _cost(call)
        return self._take()

    def grant(self, count: int) -> list[Item]:
        """That many more items may go."""
        self._credit += count
        return self._take()

    def set_open(self, is_open: bool) -> list[Item]:
        """Whether the way to the other end takes anything at present."""
        self._open = is_open
        return self._take()

    def _add(self, kind: str, text: str) -> list[Item]:
        for piece in _pieces(text):
            last = self._waiting[-1] if self._waiting else None
            if (
                not isinstance(last, _Waiting)
                or last.kind != kind
                or last.characters + len(piece) > MAX_PIECE_CHARACTERS
            ):
                last = _Waiting(kind)
                self._waiting.append(last)
            last.parts.append(piece)
            last.characters += len(piece)
            self._characters += len(piece)
        return self._take()

    def _take(self) -> list[Item]:
        items: list[Item] = []
        while self._open and self._credit > 0 and self._waiting:
            first = self._waiting.popleft()
            if isinstance(first, _Waiting):
                self._characters -= first.characters
                items.append(first.item())
            else:
                self._characters -= _cost(first)
                items.append(first)
            self._credit -= 1
        return items


def _cost(call: ChatCall) -> int:
    return len(call.call.arguments) + _CALL_COST


def _pieces(text: str) -> Iterator[str]:
    for at in range(0, len(text), MAX_PIECE_CHARACTERS):
        yield text[at : at + MAX_PIECE_CHARACTERS]
