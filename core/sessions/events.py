"""What stands in a session's event log: how turns begin, what their workers say, how they end.

The worker says :data:`jail.wire.schema.TurnItem`; the rest is core's own word.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from actors.asking import ApprovalResolved, ApprovalWanted
from jail.wire.schema import Body, Count, ErrorCode, Failure, Message, Short, TurnEnd, TurnItem, Usage

_SHOWN_CHARS = 4_000
"""How much of a turn's message is in its ``accepted``; the whole is among the session's messages."""

Finish = Literal["stop", "length", "rounds", "repeats", "failing", "wall", "content_filter"]


class Accepted(Body, frozen=True, tag="accepted"):
    """A turn began with the message ``seq`` of the session, whose text this is; ``cut`` if in part.

    ``request`` is the id of what asked for it, by which logs and audit have it too.
    """

    agent: str
    seq: Count
    text: str
    cut: bool = False
    request: str = ""


class Resumed(Body, frozen=True, tag="resumed"):
    """The turn goes on after an interruption: what it said past event ``after`` is said anew."""

    after: Count


class Used(Body, frozen=True, tag="usage"):
    """The tokens of a whole turn."""

    usage: Usage


class Ended(Body, frozen=True, tag="done"):
    """A turn's end: by itself, or at which limit."""

    finish: Finish


class Failed(Body, frozen=True, tag="error"):
    """A turn's end: it failed or was cancelled."""

    code: ErrorCode
    message: Short
    retry_after_s: int | None = None


LogItem = TurnItem | Accepted | ApprovalWanted | ApprovalResolved | Resumed | Used | Ended | Failed


class SessionEvent:
    """An event with its place. Never changed, but for ``line``: whoever needs a form keeps it there.

    ``id`` is durable and grows within the session, ``time_ms`` is Unix time in milliseconds, ``size``
    about what it takes in memory (in bytes).
    """

    __slots__ = ("id", "item", "line", "size", "time_ms", "turn")

    def __init__(self, id: int, turn: str, time_ms: int, item: LogItem, size: int) -> None:
        self.id, self.turn, self.time_ms, self.item, self.size = id, turn, time_ms, item, size
        self.line: bytes | None = None

    def __repr__(self) -> str:
        return f"SessionEvent({self.id}, {self.turn!r}, {type(self.item).__name__})"


class EventRecord(NamedTuple):
    """An event as it is kept; ``data`` is :func:`encode_event`'s."""

    id: int
    turn: str
    created_s: int
    data: bytes


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    time_ms: int
    item: LogItem


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Kept).decode
_decode_bare = msgspec.msgpack.Decoder(TurnItem).decode
_MAP = 0x80  # msgpack: the first byte of a small map


def encode_event(time_ms: int, item: LogItem) -> bytes:
    """An event's time and item as bytes."""
    return _encode(_Kept(time_ms, item))


def decode_event(record: EventRecord) -> SessionEvent:
    """What was kept as an event again."""
    if record.data[:1] and record.data[0] & 0xF0 == _MAP:  # the earliest logs held the item alone
        time_ms, item = record.created_s * 1_000, _decode_bare(record.data)
        return SessionEvent(record.id, record.turn, time_ms, item, len(record.data))
    kept = _decode(record.data)
    return SessionEvent(record.id, record.turn, kept.time_ms, kept.item, len(record.data))


def beginning(agent: str, seq: int, message: Message | None, request: str = "") -> tuple[LogItem, ...]:
    """What a turn begins with."""
    text = message.text if message is not None else ""
    return (Accepted(agent, seq, text[:_SHOWN_CHARS], len(text) > _SHOWN_CHARS, request),)


def ending(outcome: TurnEnd | Failure) -> tuple[LogItem, ...]:
    """What a turn ends with; the last of it says so."""
    if isinstance(outcome, Failure):
        return (Failed(outcome.code, outcome.message, outcome.retry_after_s),)
    return Used(outcome.usage), Ended(outcome.finish)


def ends_turn(events: Sequence[SessionEvent]) -> bool:
    """Whether the last of some events is its turn's end."""
    return bool(events) and isinstance(events[-1].item, Ended | Failed)
