"""Targets without a state worth the name: the bytes of ZMTP, of a frame, of a body.

A target takes bytes and returns how many frames it tried. It raises nothing but what is a fault.
"""

from collections.abc import Callable

import msgpack

from jail.wire.errors import PeerFault
from jail.wire.frames import MAX_FRAME_BYTES, Kind, decode_frame, encode_frame
from jail.wire.schema import FROM_JAIL, TO_JAIL, Failure, Hello, Welcome, from_wire, to_wire
from jail.wire.zmtp import Zmtp
from tests.fuzz.bodies import CANARY, mutated, valid
from tests.fuzz.choices import Choices
from tests.fuzz.memory import CONVERTED, DECODED, UNFRAMED, within

_greeted = Zmtp(64)
_GREETING = _greeted.outgoing()
_greeted.feed(_GREETING)
_READY = _greeted.outgoing()
_MESSAGE_LIMITS = (4_096, 16, MAX_FRAME_BYTES)
_PARTS = (
    _GREETING,
    _READY,
    b"\x00\x03abc",
    b"\x02\x00\x00\x00\x00\x00\x00\x00\x03abc",
    b"\x02" + (4_097).to_bytes(8, "big"),
    b"\x02" + b"\xff" * 8,
    b"\x04\x09\x04PING\x00\x10zz",
    b"\x04\x07\x04PONGzz",
    b"\x06" + (40).to_bytes(8, "big"),
    b"\x01\x01a",
    b"\x00\x00" * 200,
    b"\x04\x09\x04PING\x00\x10zz" * 90,
)
# What each side may say, by where it stands in a frame.
KINDS = [
    Hello,
    Welcome,
    Failure,
    *(kind for table in (FROM_JAIL, TO_JAIL) for verb in table.values() for kind in verb if kind is not None),
]


def refused_quietly(fault: PeerFault) -> None:
    """A fault's words are ours alone: they go to a log."""
    assert CANARY not in fault.detail, "a fault repeats the peer's own words"
    assert len(fault.detail) <= 300


def zmtp(data: bytes) -> int:
    """Bytes into ``Zmtp.feed``, cut anywhere: good parts, and any others."""
    choices = Choices(data)
    limit = choices.one(_MESSAGE_LIMITS)
    end, frames, owed = Zmtp(limit), 0, 0
    if choices.chance(200):
        end.feed(_GREETING + _READY)
    while choices.left:
        part = choices.one(_PARTS) if choices.chance(128) else choices.some()
        if choices.chance(64):
            part = part[choices.byte() % (len(part) + 1) :]
        for piece in _cut(part, 1 + choices.below(3)):
            try:
                messages = within(UNFRAMED, len(piece) + limit, lambda piece=piece: end.feed(piece))  # type: ignore[misc]
            except PeerFault as fault:
                refused_quietly(fault)
                _stays_shut(end, fault)
                return frames + 1
            frames += len(messages)
            assert end.ready or not messages
            assert all(len(message) <= limit for message in messages)
            assert len(end._buffer) <= max(limit, 512) + 9, "more is kept than one message"
        if choices.chance(128):
            owed = len(end.outgoing())
        assert owed <= 2_048
    return frames


def connect(limit: int) -> Callable[[bytes], list[bytes]]:
    """``feed`` of an end that shook hands, held to the bound."""
    end = Zmtp(limit)
    end.feed(_GREETING + _READY)
    return lambda data: within(UNFRAMED, len(data) + limit, lambda: end.feed(data))


def _stays_shut(end: Zmtp, fault: PeerFault) -> None:
    for piece in (b"", _READY):
        again: PeerFault | None = None
        try:
            end.feed(piece)
        except PeerFault as raised:
            again = raised
        assert again is fault, "bytes are taken after a fault"
    assert not end._buffer


def _cut(data: bytes, pieces: int) -> list[bytes]:
    size = max(1, len(data) // pieces)
    return [data[at : at + size] for at in range(0, len(data), size)]


def frames(data: bytes) -> int:
    """Bytes into ``decode_frame``: as they are, behind a good head, and repeated to any length."""
    choices = Choices(data)
    head = choices.one((b"", b"\x94\x01\x02\x01", b"\x94\x01\x03\x02\x91", b"\x94\x01\x02\x03\xdc\x03\xff"))
    times = choices.one((1, 1, 1, 1, 2, 3, 20, 60, 300, 1, 1, 1, 1, 1, 4_000, 300_000))
    piece = choices.rest()
    raw = (head + piece * times)[: MAX_FRAME_BYTES + 1]
    try:
        frame = within(DECODED, len(raw), lambda: decode_frame(raw))
    except PeerFault as fault:
        refused_quietly(fault)
        return 1
    # what was taken can be said again, and means the same; a long form may be shorter the second time
    again = encode_frame(frame.kind, frame.id, frame.body)
    assert len(again) <= len(raw)
    assert encode_frame(*decode_frame(again)) == again
    return 1


def schema(data: bytes) -> int:
    """Bodies of every kind, right and wrong, through a frame and into ``from_wire``."""
    choices = Choices(data)
    tried = 0
    while choices.left and tried < 16:
        kind = choices.one(KINDS)
        raw = valid(choices, kind)
        wrong = choices.chance(150)
        if wrong:
            raw = mutated(choices, raw)
        tried += 1
        packed = msgpack.packb([1, int(Kind.REQUEST), 1, raw])
        try:
            body = decode_frame(packed).body
            found = within(CONVERTED, len(packed), lambda body=body: from_wire(body, kind))  # type: ignore[misc]  # noqa: B023
        except PeerFault as fault:
            refused_quietly(fault)
            if not wrong:
                raise AssertionError(f"a right {kind} was refused") from fault
            continue
        assert from_wire(to_wire(found), kind) == found
    return tried
