"""Frames: what goes round, what is refused, and what a hostile one may cost."""

import math
import tracemalloc

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jail.wire.errors import LocalFault, PeerFault
from jail.wire.frames import MAX_FRAME_BYTES, Frame, Kind, decode_frame, encode_frame

HEAD = b"\x94\x01\x02\x01"  # [1, REQUEST, 1, ...

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.binary(max_size=20)
)
bodies = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def _depth(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, inner), default=0)


@settings(deadline=None)
@given(st.sampled_from(Kind), st.integers(0, 2**53), bodies.filter(lambda b: _depth(b) <= 8))
def test_frames_go_round(kind: Kind, request_id: int, body: object) -> None:
    assert decode_frame(encode_frame(kind, request_id, body)) == Frame(kind, request_id, body)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "encoding"),
        (b"\xc1", "encoding"),
        (HEAD + b"\xc0\x00", "encoding"),  # trailing bytes
        (HEAD, "encoding"),  # cut short
        (HEAD + msgpack.packb(math.nan), "encoding"),
        (HEAD + msgpack.packb(-math.inf), "encoding"),
        (HEAD + b"\x82\xa1a\x01\xa1a\x02", "encoding"),  # duplicate key
        (HEAD + b"\x81\x01\x01", "encoding"),  # a key that is no string
        (HEAD + b"\x81\xc4\x01a\x01", "encoding"),
        (HEAD + b"\x81\x90\x01", "encoding"),  # unhashable
        (HEAD + b"\xa1\xff", "encoding"),  # not UTF-8
        (HEAD + b"\xa3\xed\xa0\x80", "encoding"),  # a surrogate
        (HEAD + b"\xd4\x05\x00", "encoding"),  # extension types, timestamps too
        (HEAD + b"\xd6\xff\x00\x00\x00\x00", "encoding"),
        (HEAD + b"\xc7\x00\x05", "encoding"),
        (HEAD + b"\x91" * 9 + b"\xc0", "encoding"),  # depth
        (HEAD + b"\x91" * 100_000 + b"\xc0", "encoding"),
        (HEAD + b"\x81\xa1a" * 100_000 + b"\xc0", "encoding"),
        (HEAD + b"\xdd\xff\xff\xff\xff", "encoding"),  # announced lengths
        (HEAD + b"\xdf\xff\xff\xff\xff", "encoding"),
        (HEAD + b"\xdb\xff\xff\xff\xff", "encoding"),
        (HEAD + b"\xc6\xff\xff\xff\xff", "encoding"),
        (HEAD + b"\xc9\xff\xff\xff\xff\x05", "encoding"),
        (msgpack.packb({"version": 1}), "schema"),
        (msgpack.packb([1, 2, 1]), "schema"),
        (msgpack.packb([1, 2, 1, None, None]), "schema"),
        (msgpack.packb([2, 2, 1, None]), "version"),
        (msgpack.packb([True, 2, 1, None]), "version"),
        (msgpack.packb([1.0, 2, 1, None]), "version"),
        (msgpack.packb([1, True, 1, None]), "schema"),
        (msgpack.packb([1, 8, 1, None]), "schema"),
        (msgpack.packb([1, -1, 1, None]), "schema"),
        (msgpack.packb([1, 2, True, None]), "schema"),
        (msgpack.packb([1, 2, -1, None]), "schema"),
        (msgpack.packb([1, 2, 2**53 + 1, None]), "schema"),
        (msgpack.packb([1, 2, "1", None]), "schema"),
        (b"\xc0" * (MAX_FRAME_BYTES + 1), "oversize"),
    ],
)
def test_what_is_not_our_msgpack_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(PeerFault) as caught:
        decode_frame(data)

    assert caught.value.reason == reason


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_a_frame_or_a_fault(data: bytes) -> None:
    for head in (b"", b"\x94", HEAD, HEAD + b"\x82"):
        try:
            assert isinstance(decode_frame(head + data), Frame)
        except PeerFault:
            pass


@settings(deadline=None)
@given(st.binary(min_size=1, max_size=6), st.integers(1, 40_000))
def test_any_repeated_bytes_are_a_frame_or_a_fault(piece: bytes, times: int) -> None:
    try:
        decode_frame(HEAD + piece * times)
    except PeerFault:
        pass


def _full(data: bytes) -> bytes:
    return data[:MAX_FRAME_BYTES]


_HOSTILE = {
    "empty maps": HEAD + b"\xdd\x00\x0f\xff\xf0" + b"\x80" * MAX_FRAME_BYTES,
    "lists of empty maps": HEAD + b"\xdc\x03\xff" + (b"\xdc\x03\xff" + b"\x80" * 1_023) * 1_023,
    "maps of maps": HEAD + (b"\x81\xa1a" * 8 + b"\x80") * 40_000,
    "depth": b"\x91" * MAX_FRAME_BYTES,
    "depth of long lists": b"\xdc\x04\x00" * MAX_FRAME_BYTES,
    "depth of long maps": b"\xde\x00\x40\xa1a" * MAX_FRAME_BYTES,
    "depth below the stack's": HEAD + b"\xdc\x04\x00" * 1_000,
    "strings in lists that never end": HEAD + (b"\xdc\x04\x00" + b"\xa3\xe4\xb8\xad" * 255) * 1_000,
    "integers in lists that never end": HEAD + (b"\xdc\x04\x00" + b"\xcd\x7f\xff" * 255) * 1_000,
    "short strings": HEAD + b"\xdc\x03\xff" + (b"\xdc\x03\xff" + b"\xa2ab" * 1_023) * 300,
    "big integers": HEAD + b"\xdc\x03\xff" + (b"\xdc\x03\xff" + b"\xcf" + b"\xff" * 8) * 100_000,
    "floats": HEAD + b"\xdc\x03\xff" + (b"\xdc\x03\xff" + b"\xcb\x00" * 8) * 100_000,
}


@pytest.mark.parametrize("name", _HOSTILE)
def test_a_hostile_megabyte_stays_within_ten(name: str) -> None:
    data = _full(_HOSTILE[name])
    tracemalloc.start()
    try:
        with pytest.raises(PeerFault):
            decode_frame(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 10 << 20


def test_a_frame_too_short_to_be_looked_through_stays_within_two_megabytes() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(PeerFault):
            decode_frame(b"\xdc\x04\x00" * 170)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 2 << 20


def test_a_long_frame_is_taken_up_to_the_last_value_allowed() -> None:
    rows = [[7] * 1_023] * 31 + [[7] * 985]  # with the frame's own four and the lists: 32,768

    assert decode_frame(encode_frame(Kind.REQUEST, 1, rows)).body == rows
    rows[-1] = [7] * 986
    with pytest.raises(PeerFault, match="32768 values"):
        decode_frame(encode_frame(Kind.REQUEST, 1, rows))


def test_what_we_cannot_say_is_our_fault() -> None:
    with pytest.raises(LocalFault):
        encode_frame(Kind.REQUEST, 1, "x" * MAX_FRAME_BYTES)
    with pytest.raises(LocalFault):
        encode_frame(Kind.REQUEST, 1, "\ud800")
    with pytest.raises(LocalFault):
        encode_frame(Kind.REQUEST, 1, 2**70)
    with pytest.raises(LocalFault):
        encode_frame(Kind.REQUEST, 1, object())
