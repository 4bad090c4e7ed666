"""http_fetch in a worker: what it asks of core, what it tells the model, which files it reads and writes."""

import os

import pytest

from jail.wire.schema import Failure, Header, HttpData, HttpEnd, HttpHead, ToolEnded
from tests.actor.peer.conftest import Pair, Start
from tests.actor.peer.scripts import agent, call, say, use
from tests.fakes.core_end import Answer

URL = "https://api.example.com/v1"


def fetch(pair: Pair, fetched: Answer | None, /, **arguments: object) -> ToolEnded:
    """The result of one call, to which a server outside answers ``fetched``."""
    if fetched is not None:
        pair.core.fetched.append(fetched)
    pair.core.answers = [use(call("http_fetch", "c1", url=URL, **arguments)), say("Done.")]
    (ended,) = pair.core.run_turn(agent(tool_result_bytes=8_192)).of(ToolEnded)
    assert isinstance(ended, ToolEnded)
    return ended


def told(*pieces: bytes, status: int = 200, **headers: str) -> Answer:
    """An answer as core passes it on."""
    listed = tuple(Header(name.replace("_", "-"), value) for name, value in headers.items())
    items = [HttpHead(status, URL, listed), *(HttpData(piece) for piece in pieces)]
    return Answer(items, HttpEnd(sum(map(len, pieces))))


@pytest.fixture
def pair(start: Start) -> Pair:
    """A worker and core's end."""
    return start()


def test_an_answer_is_told_with_its_status_and_the_headers_that_matter(pair: Pair) -> None:
    ended = fetch(pair, told(b"hello ", "w\xf6rld".encode(), content_type="text/plain", x_noise="1"))
    assert ended.ok
    assert ended.text == f"HTTP 200 from {URL}\ncontent-type: text/plain\n\nhello w\xf6rld"
    (ask,) = pair.core.fetches
    assert (ask.method, ask.url, ask.headers, ask.body, ask.more) == ("GET", URL, (), b"", False)


def test_headers_and_a_body_go_out_as_they_were_given(pair: Pair) -> None:
    mark = "Bearer {{credential:api}}"
    ended = fetch(pair, told(status=404), method="POST", headers={"Authorization": mark}, body="text")
    assert not ended.ok
    assert ended.text.startswith("HTTP 404")
    (ask,) = pair.core.fetches
    assert (ask.method, ask.headers, ask.body) == ("POST", (Header("Authorization", mark),), b"text")


def test_a_file_goes_out_in_pieces_and_an_answer_into_one(pair: Pair) -> None:
    data = os.urandom(300_000)
    (pair.worker.home / "out.bin").write_bytes(data)
    answer = told(*[b"x" * 60_000] * 30)
    ended = fetch(pair, answer, method="PUT", body_file="out.bin", save_to="in.bin")
    assert ended.ok
    assert "[1800000 bytes written to in.bin]" in ended.text
    # the fake's answer does not wait for the rest
    (ask,) = pair.core.fetches
    assert ask.more
    assert pair.core.uploads[0] == data[:131_072]
    assert (pair.worker.home / "in.bin").read_bytes() == b"x" * 1_800_000


def test_a_long_text_is_cut_and_bytes_that_are_none_are_left_out(pair: Pair) -> None:
    ended = fetch(pair, told(*[b"x" * 60_000] * 3))
    assert "bytes more are left out; save_to writes all to a file" in ended.text
    assert len(ended.text) <= 8_192
    assert "[4 bytes that are no text" in fetch(pair, told(b"\0\1\2\3")).text


def test_why_a_request_failed_is_told(pair: Pair) -> None:
    words = "no rule lets the agent GET https://api.example.com/v1"
    ended = fetch(pair, Answer([], Failure("refused", words)))
    assert (ended.ok, ended.text) == (False, f"The request failed (refused): {words}.")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"body": "a", "body_file": "b"}, "either body or body_file"),
        ({"body_file": "missing"}, "missing"),
        ({"save_to": "no/such/place"}, "no/such/place"),
        ({"headers": {"X": "y" * 20_000}}, "too long"),
    ],
)
def test_what_cannot_be_asked_is_not(pair: Pair, arguments: dict[str, object], words: str) -> None:
    ended = fetch(pair, None, **arguments)
    assert not ended.ok
    assert words in ended.text
    assert pair.core.fetches == []


def test_a_name_that_is_a_pipe_is_neither_read_nor_written(pair: Pair) -> None:
    os.mkfifo(pair.worker.home / "pipe")
    assert not fetch(pair, None, body_file="pipe").ok
    assert not fetch(pair, None, save_to="pipe").ok
    assert pair.core.fetches == []
