"""Clients that leave or stop reading: their own turn ends, a session's goes on, nobody else notices."""

import json
import socket
import time
from contextlib import closing
from uuid import uuid4

import openai

from tests.fakes.model_server import FakeModelServer, Script
from tests.fakes.real_server import LIMIT_S, Done, Person, memory_bytes, until

_ENOUGH_BYTES = 96 << 20


def leave_after_first_piece(person: Person, session: str = "") -> None:
    """Begin to read an answer of the fake agent's and go away."""
    with (
        person.client() as client,
        client.chat.completions.create(
            model="fake",
            messages=[{"role": "user", "content": "tell me a tale"}],
            stream=True,
            extra_headers={"X-Certosa-Session": session} if session else {},
        ) as stream,
    ):
        for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                return
    raise AssertionError("the answer ended before anybody could leave")


def test_leaving_without_a_session_stops_the_model_within_two_seconds(
    alice: Person, model: FakeModelServer
) -> None:
    model.say(Script(text="tok " * 2_000, rate_per_s=20))
    leave_after_first_piece(alice)
    left_s = time.monotonic()
    assert model.left.acquire(timeout=LIMIT_S)
    assert time.monotonic() - left_s < 2


def test_a_client_that_leaves_before_the_first_token_stops_the_model_too(
    alice: Person, model: FakeModelServer
) -> None:
    before = len(model.requests)
    model.say(Script(misbehave="slow_headers"))
    body = {"model": "fake", "messages": [{"role": "user", "content": "hi"}]}
    with closing(send(alice, body)):
        until("the request upstream", lambda: len(model.requests) > before)
    left_s = time.monotonic()
    assert model.left.acquire(timeout=LIMIT_S)
    # by the client's leaving, not by the provider's own limit of 2.5 s in all
    assert time.monotonic() - left_s < 2


def test_leaving_a_session_lets_the_turn_go_on(alice: Person, model: FakeModelServer) -> None:
    session = f"s-{uuid4().hex[:8]}"
    whole = "".join(f"word{n} " for n in range(30))
    model.say(Script(text=whole, rate_per_s=40))
    left = model.left
    leave_after_first_piece(alice, session)
    model.say(Script(text="and on"))

    def free() -> Done | None:
        try:
            return alice.ask("and then?", session, "fake")
        except openai.ConflictError:
            return None

    assert until("the end of the turn", free).text == "and on"
    assert model.requests[-1].body["messages"][-2] == {"role": "assistant", "content": whole}
    assert not left.acquire(blocking=False)


def test_a_client_that_stops_reading_holds_up_nobody_and_costs_little(alice: Person, bob: Person) -> None:
    alice.add_agent("load", 'provider = "builtin"\nmodel = "load"\n')
    core = alice.server.pid("core")
    alice.ask("help")
    before = memory_bytes(core)
    body = {
        "model": "load",
        "stream": True,
        "messages": [{"role": "user", "content": "tokens=60000 rate=0 size=1000"}],
    }
    with closing(send(alice, body)) as sock:
        assert sock.recv(1)
        most = 0
        for _ in range(20):
            assert bob.ask("run: echo fine").output.startswith("fine")
            most = max(most, memory_bytes(core) - before)
        assert alice.ask("run: echo fine too").output.startswith("fine too")
    assert most < _ENOUGH_BYTES
    # it is gone now: its turn is not counted any more, so all of alice's four places are free
    until("the end of the turn", lambda: _free_places(alice))


def _free_places(person: Person) -> bool:
    socks = []
    try:
        for _ in range(4):
            body = {
                "model": "load", "stream": True,
                "messages": [{"role": "user", "content": "tokens=9999 rate=10"}],
            }  # fmt: skip
            socks.append(send(person, body))
            if not socks[-1].recv(12).startswith(b"HTTP/1.1 200"):
                return False
        return True
    finally:
        for sock in socks:
            sock.close()


def test_a_body_that_never_comes_and_headers_that_never_end_hold_up_nobody(alice: Person) -> None:
    with (
        closing(socket.create_connection(("127.0.0.1", alice.server.hub_port), LIMIT_S)) as half_headers,
        closing(socket.create_connection(("127.0.0.1", alice.server.hub_port), LIMIT_S)) as half_body,
    ):
        half_headers.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-")
        half_body.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n"
            b"Authorization: Bearer " + alice.token.encode() + b"\r\n\r\n{"
        )
        assert alice.ask("help").finish == "stop"


def send(person: Person, body: object) -> socket.socket:
    """A request as bytes on a socket of one's own, with a small receive window."""
    data = json.dumps(body).encode()
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    sock.settimeout(LIMIT_S)
    sock.connect(("127.0.0.1", person.server.hub_port))
    sock.sendall(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        + f"Authorization: Bearer {person.token}\r\nContent-Length: {len(data)}\r\n\r\n".encode()
        + data
    )
    return sock
