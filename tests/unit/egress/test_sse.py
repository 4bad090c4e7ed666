"""The event parser reads what the standard allows, in any cut, and stops at its limits."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.egress.sse import MAX_EVENT_BYTES, MAX_LINE_BYTES, SseError, SseParser


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: one\n\n", [b"one"]),
        (b"data:one\r\n\r\ndata: two\r\r", [b"one", b"two"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b": comment\nevent: x\nid: 7\nretry: 9\ndata: a\n\n", [b"a"]),
        (b"\xef\xbb\xbfdata: bom\n\n", [b"bom"]),
        (b"data\n\n", [b""]),
        (b"data:  two spaces\n\n", [b" two spaces"]),
        (b"\n\n\n", []),
        (b"data: unfinished\n", []),
        (b"database: no\n\n", []),
        (b"", []),
    ],
)
def test_a_stream_is_read_as_the_standard_says(stream: bytes, events: list[bytes]) -> None:
    assert SseParser().feed(stream) == events


@given(
    st.lists(st.binary(max_size=20).map(lambda b: b.replace(b"\r", b"").replace(b"\n", b""))),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.lists(st.integers(0, 400)),
)
def test_where_the_bytes_are_cut_makes_no_difference(texts: list[bytes], end: bytes, cuts: list[int]) -> None:
    stream = b"".join(b"data: " + text + end + end for text in texts)
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    parser = SseParser()
    got = [e for a, b in pairwise(places) for e in parser.feed(stream[a:b])]
    assert got == texts


@given(st.lists(st.binary(max_size=300)))
def test_no_bytes_raise_anything_but_a_stream_error(chunks: list[bytes]) -> None:
    parser = SseParser()
    for chunk in chunks:
        for event in parser.feed(chunk):
            assert b"\r" not in event


def test_a_line_without_an_end_is_stopped_at_the_limit() -> None:
    parser = SseParser()
    for _ in range(MAX_LINE_BYTES // 65_536):
        parser.feed(b"x" * 65_536)
    with pytest.raises(SseError, match="line"):
        parser.feed(b"x")


def test_an_event_of_endless_lines_is_stopped_at_the_limit() -> None:
    parser = SseParser()
    line = b"data: " + b"x" * 1_023 + b"\n"
    for _ in range(MAX_EVENT_BYTES // 1_024):
        parser.feed(line)
    with pytest.raises(SseError, match="event"):
        parser.feed(line)
