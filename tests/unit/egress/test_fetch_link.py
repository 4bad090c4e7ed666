"""Core's part of fetches: what is sent to egress, who gets which answer, what is left at an end."""

from typing import Any

import pytest

from actors.service import TurnSpec, VerbRequest
from core.egress.fetch_messages import (
    FetchBody,
    FetchCancel,
    FetchCredit,
    FetchDone,
    FetchFailed,
    FetchItem,
    FetchStart,
    FetchTaken,
)
from core.egress.outside import SentValues
from core.errors import LinkError
from core.fetch_link import FetchLink
from jail.wire.schema import Agent, Done, Failure, Header, HttpBody, HttpData, HttpEnd, HttpFetch
from tests.fakes.handle import FakeHandle
from tests.fakes.sink import FakeSink

TURN = "turn_" + "1" * 16
NAME = "0" * 16


class Told:
    """A reply that remembers."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.end: Any = None

    def item(self, body: Any) -> None:
        self.items.append(body)

    def done(self, body: Any) -> None:
        assert self.end is None
        self.end = body

    def fail(self, code: Any, message: str, retry_after_s: int | None = None) -> None:
        assert self.end is None
        self.end = Failure(code, message, retry_after_s)


class Link:
    """A FetchLink, what it sent, and requests to it."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.down = False
        self._ids = iter(range(1, 1_000))
        self.fetches = FetchLink(lambda: next(self._ids), self._send)
        self._request = 0

    def _send(self, message: Any) -> None:
        if self.down:
            raise LinkError("gone")
        self.sent.append(message)

    def ask(self, body: Any, user: str = "alice") -> tuple[VerbRequest, Told]:
        self._request += 1
        told = Told()
        agent = Agent("assistant", "", "builtin", "assistant")
        turn = TurnSpec(TURN, FakeHandle(user), agent, FakeSink(), None)
        request = VerbRequest(turn.handle, 1, "agent", turn, self._request, "http.fetch", body, told)
        self.fetches.serve(request)
        return request, told

    def fetch(self, name: str = NAME, user: str = "alice") -> tuple[VerbRequest, Told]:
        headers = (Header("X-A", "b"),)
        return self.ask(HttpFetch(TURN, name, "GET", "https://x.example/", headers, b"body", True), user)


@pytest.fixture
def link() -> Link:
    return Link()


def test_a_fetch_is_its_connections_users_whatever_the_jail_says(link: Link) -> None:
    _, told = link.fetch()
    headers = (Header("X-A", "b"),)
    url = "https://x.example/"
    assert link.sent == [FetchStart(1, "alice", "agent", TURN, "GET", url, headers, b"body", True)]
    link.fetches.deliver(FetchItem(1, HttpData(b"a")))
    link.fetches.deliver(FetchDone(1, HttpEnd(1)))
    link.fetches.deliver(FetchItem(1, HttpData(b"late")))
    assert (told.items, told.end) == ([HttpData(b"a")], HttpEnd(1))


def test_pieces_of_a_body_go_to_their_own_users_fetch(link: Link) -> None:
    link.fetch()
    link.fetch(user="bob")
    _, told = link.ask(HttpBody(TURN, NAME, b"more", True), "bob")
    assert link.sent[-1] == FetchBody(3, 2, b"more", True)
    link.fetches.deliver(FetchTaken(3))
    assert told.end == Done()
    _, other = link.ask(HttpBody(TURN, "f" * 16, b"more", True))
    assert other.end == Failure("not_found", "this fetch is over")
    _, again = link.fetch()
    assert again.end.code == "invalid"


def test_credit_and_cancel_reach_egress_while_it_runs(link: Link) -> None:
    request, _ = link.fetch()
    link.fetches.credit(request.key, 3)
    assert link.fetches.request(1) is request
    link.fetches.cancel(request.key)
    link.fetches.cancel(request.key)
    link.fetches.credit(request.key, 3)
    assert link.sent[1:] == [FetchCredit(1, 3), FetchCancel(1)]
    assert link.fetches.request(1) is None
    link.fetches.deliver(FetchFailed(1, Failure("upstream", "late")))


def test_without_egress_everything_fails_and_can_be_tried_again(link: Link) -> None:
    _, running = link.fetch()
    link.fetches.lose()
    assert running.end.code == "unavailable"
    link.down = True
    request, told = link.fetch()
    assert told.end.code == "unavailable"
    link.fetches.cancel(request.key)
    link.down = False
    link.fetch()
    assert isinstance(link.sent[-1], FetchStart)


def test_values_that_were_sent_are_known_by_user_and_bounded() -> None:
    sent = SentValues()
    sent.note("alice", ["first-value"])
    assert sent.of("bob") == frozenset()
    for number in range(16):
        sent.note("alice", [f"value-{number}"])
    assert "first-value" not in sent.of("alice")
    assert len(sent.of("alice")) == 16
    for number in range(1_000):
        sent.note(f"user-{number}", ["value"])
    assert sent.of("alice") == frozenset()
    sent.forget("user-7")
    assert sent.of("user-7") == frozenset()
    assert sent.of("user-8") == {"value"}
    assert "value" not in repr(sent)
