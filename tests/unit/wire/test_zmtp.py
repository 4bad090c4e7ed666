"""Core's end of ZMTP against tables of bytes and against anything at all."""

import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jail.wire.errors import LocalFault, PeerFault
from jail.wire.zmtp import Zmtp

GREETING = b"\xff" + b"\0" * 8 + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + b"\0" * 32
# what libzmq 4.3.5 says for a PAIR
READY = b"\x04\x1a\x05READY\x0bSocket-Type\x00\x00\x00\x04PAIR"
LIMIT = 1_000


def ready() -> Zmtp:
    """An end whose peer has said all it has to before messages."""
    zmtp = Zmtp(LIMIT)
    assert zmtp.feed(GREETING + READY) == []
    zmtp.outgoing()
    return zmtp


def byte_by_byte(zmtp: Zmtp, data: bytes) -> None:
    """Feed the data in the smallest pieces."""
    for at in range(len(data)):
        zmtp.feed(data[at : at + 1])


def flood(zmtp: Zmtp) -> None:
    """4 MB that are no whole frame for long."""
    for _ in range(64):
        zmtp.feed(b"\x01" * 65_536)


def test_the_greeting_is_said_at_once_and_ready_after_the_peers() -> None:
    zmtp = Zmtp(LIMIT)

    assert zmtp.outgoing() == GREETING
    zmtp.feed(GREETING)
    said = zmtp.outgoing()

    assert said.startswith(b"\x04")
    assert said[2:8] == b"\x05READY"
    assert said[1] == len(said) - 2
    assert zmtp.outgoing() == b""
    assert not zmtp.ready


def test_two_ends_understand_each_other() -> None:
    one, other = Zmtp(LIMIT), Zmtp(LIMIT)
    for _ in range(3):
        other.feed(one.outgoing())
        one.feed(other.outgoing())

    assert one.ready
    assert other.ready
    assert other.feed(one.encode(b"hello")) == [b"hello"]


def test_it_stops_where_it_is_told_to_and_goes_on_without_more_bytes() -> None:
    zmtp = Zmtp(LIMIT)
    zmtp.feed(GREETING + READY)
    pong = b"\x04\x05\x04PONG"
    assert zmtp.feed(b"\x00\x01a" + pong + b"\x00\x01b\x00\x01c\x00", 2) == [b"a"]
    assert (zmtp.handled, zmtp.more) == (2, True)
    assert zmtp.feed(b"", 2) == [b"b", b"c"]
    assert zmtp.feed(b"", 2) == []
    assert (zmtp.handled, zmtp.more) == (0, False)
    assert zmtp.feed(b"\x01d", 2) == [b"d"]


@settings(deadline=None)
@given(st.lists(st.binary(max_size=LIMIT), max_size=5), st.data())
def test_messages_survive_any_cut(messages: list[bytes], data: st.DataObject) -> None:
    stream = GREETING + READY + b"".join(map(Zmtp(LIMIT).encode, messages))
    zmtp = Zmtp(LIMIT)
    got: list[bytes] = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        got += zmtp.feed(stream[:size])
        stream = stream[size:]

    assert got == messages


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1", "greeting"),
        (b"\0", "greeting"),
        (b"\xff" + b"\0" * 9, "greeting"),
        (b"\xff" + b"\0" * 8 + b"\x7f\x01", "greeting"),
        (GREETING.replace(b"NULL\0", b"PLAIN"), "greeting"),
        (GREETING.replace(b"NULL", b"NULX"), "greeting"),
        (GREETING + b"\x00\x05", "command"),  # a message before READY
        (GREETING + b"\x01\x05", "multipart"),
        (GREETING + b"\x08\x05", "command"),  # reserved bits
        (GREETING + b"\x80\x05", "command"),
        (GREETING + b"\x04\x00", "command"),  # an empty command
        (GREETING + b"\x04\x06\x05ERROR", "command"),
        (GREETING + b"\x04\x05\x04PING", "command"),  # before READY
        (GREETING + READY.replace(b"PAIR", b"PUSH"), "command"),
        (GREETING + b"\x04\x06\x05READY", "command"),  # no socket type
        (GREETING + b"\x04\x08\x05READY\x0bS", "command"),  # cut short
        (GREETING + b"\x04\x0d\x05READY\x01S\xff\xff\xff\xff!", "command"),
        (GREETING + b"\x06" + struct.pack(">Q", 513), "oversize"),
        (GREETING + READY + READY, "command"),
        (GREETING + READY + b"\x01", "multipart"),  # at its flag alone
        (GREETING + READY + b"\x03", "multipart"),
        (GREETING + READY + b"\x05", "multipart"),
        (GREETING + READY + b"\x02" + struct.pack(">Q", LIMIT + 1), "oversize"),
        (GREETING + READY + b"\x02" + b"\xff" * 8, "oversize"),
        (GREETING + READY + b"\x04\x05\x04PING\x00", "command"),  # no time to live
        (GREETING + READY + b"\x04\x0b\x09SUBSCRIBEx", "command"),
        (GREETING + READY + b"\x04\x01\xff", "command"),
    ],
)
def test_what_does_not_belong_is_refused(data: bytes, reason: str) -> None:
    zmtp = Zmtp(LIMIT)
    with pytest.raises(PeerFault) as caught:
        byte_by_byte(zmtp, data)  # as early as the bytes allow

    assert caught.value.reason == reason


def test_a_fault_poisons_the_end() -> None:
    zmtp = ready()
    with pytest.raises(PeerFault) as first:
        zmtp.feed(b"\x01")
    with pytest.raises(PeerFault) as second:
        zmtp.feed(Zmtp(LIMIT).encode(b"good"))

    assert second.value is first.value


def test_a_ping_is_answered_with_its_context() -> None:
    zmtp = ready()

    assert zmtp.feed(b"\x04\x0a\x04PING\x00\x0actx") == []
    assert zmtp.outgoing() == b"\x04\x08\x04PONGctx"
    assert zmtp.feed(b"\x04\x05\x04PONG") == []
    assert zmtp.outgoing() == b""


def test_pings_faster_than_their_answers_are_a_flood() -> None:
    zmtp = ready()
    with pytest.raises(PeerFault) as caught:
        zmtp.feed(b"\x04\x07\x04PING\x00\x0a" * 1_000)

    assert caught.value.reason == "flood"


def test_our_own_oversize_is_our_fault() -> None:
    with pytest.raises(LocalFault):
        Zmtp(LIMIT).encode(b"x" * (LIMIT + 1))
    assert Zmtp(LIMIT).encode(b"x" * 255)[:2] == b"\x00\xff"
    assert Zmtp(LIMIT).encode(b"x" * 256)[:9] == b"\x02" + struct.pack(">Q", 256)


@settings(deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_messages_or_a_fault(data: bytes) -> None:
    for start in (b"", GREETING, GREETING + READY):
        zmtp = Zmtp(LIMIT)
        try:
            zmtp.feed(start)
            assert all(len(message) <= LIMIT for message in zmtp.feed(data))
        except PeerFault:
            pass


def test_a_frame_that_never_ends_is_held_to_the_limit() -> None:
    zmtp = Zmtp(1 << 20)
    zmtp.feed(GREETING + READY)
    tracemalloc.start()
    try:
        zmtp.feed(b"\x02" + struct.pack(">Q", 1 << 20))
        with pytest.raises(PeerFault):
            flood(zmtp)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 4 << 20
