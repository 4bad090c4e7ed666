"""Requests let in by a good token whose body comes after the token's user was disabled or deleted."""

import json
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.fakes.real_server import LIMIT_S, Person, RealServer


class Late:
    """A request that was let in: its token is verified, the end of its body is held back."""

    def __init__(
        self,
        person: Person,
        text: str | list[dict[str, Any]] = "",
        session: str = "",
        at: str = "POST /v1/chat/completions",
        body: Any = None,
    ) -> None:
        chat = {"model": "assistant", "messages": [{"role": "user", "content": text}]}
        self._body = body if isinstance(body, bytes) else json.dumps(body or chat).encode()
        self._sock = socket.create_connection(("127.0.0.1", person.server.hub_port), timeout=LIMIT_S)
        head = [
            f"{at} HTTP/1.1",
            "Host: certosa",
            f"Authorization: Bearer {person.token}",
            f"Content-Length: {len(self._body)}",
            "Expect: 100-continue",
            "Connection: close",
            *([f"X-Certosa-Session: {session}"] if session else []),
        ]
        self._sock.sendall("\r\n".join(head).encode() + b"\r\n\r\n")
        # the handler has begun; the token is verified before anything of the body is waited for
        assert self._sock.recv(4096).startswith(b"HTTP/1.1 100")
        self._sock.sendall(self._body[:1])
        time.sleep(0.5)  # that nobody can see from here; were it too short, nothing would be tried

    def finish(self) -> tuple[int, Any]:
        """Send the rest; the answer's status and body."""
        self._sock.sendall(self._body[1:])
        data = b""
        with self._sock:
            while more := self._sock.recv(65_536):
                data += more
        head, _, body = data.partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(body)


def delete(server: RealServer, name: str) -> None:
    server.admin.call("DELETE", f"/v1/users/{name}")


def disable(server: RealServer, name: str) -> None:
    server.admin.call("POST", f"/v1/users/{name}/disable")


@pytest.mark.parametrize("act", [delete, disable])
def test_a_late_body_begins_no_turn_of_a_user_who_is_gone(
    server: RealServer, act: Callable[[RealServer, str], None]
) -> None:
    erin = server.new_user(f"erin-{act.__name__}")
    late = [Late(erin, "help"), Late(erin, "help", "notes")]
    control = Late(erin, "help")
    assert control.finish()[0] == 200
    act(server, erin.name)
    for request in late:
        status, answer = request.finish()
        assert (status, answer["error"]["code"]) == (401, "invalid_token")


def test_a_deleted_users_late_body_reaches_nothing_of_a_namesake(server: RealServer) -> None:
    old = server.new_user("frank")
    late = [
        Late(old, "run: cat secret.txt; echo owned > owned.txt"),
        Late(old, "read secret.txt", "notes"),
    ]
    delete(server, "frank")
    new = server.new_user("frank")
    new.put("secret.txt", "the second one's")
    for request in late:
        status, answer = request.finish()
        assert (status, answer["error"]["code"]) == (401, "invalid_token")
    assert not (new.home / "owned.txt").exists()
    # and the session of that name is the second one's to begin
    assert "the second one's" in new.ask("read secret.txt", "notes").text


def to_the_home(person: Person) -> Late:
    return Late(person, at="PUT /v1/files/content?path=owned.txt", body=b"the first one's")


def to_the_agents(person: Person) -> Late:
    return Late(person, at="PUT /v1/agents/owned", body={"prompt": "the first one's"})


def to_the_vault(person: Person) -> Late:
    terms = {"kind": "key", "host": "api.example.org", "scheme": "https", "value": "the-first-ones-key"}
    return Late(person, at="PUT /v1/credentials/owned", body=terms)


def with_a_file(person: Person) -> Late:
    data = "data:text/plain;base64,dGhlIGZpcnN0IG9uZSdz"
    return Late(person, [{"type": "file", "file": {"file_data": data, "filename": "owned.txt"}}])


LATE = [to_the_home, to_the_agents, to_the_vault, with_a_file]


def names_kept(person: Person) -> set[str]:
    """What a user has in every place that is found by their name."""
    with person.client() as client:
        credentials = client.get("/credentials", cast_to=dict[str, Any])["data"]
        agents = client.get("/agents", cast_to=dict[str, Any])["data"]
    files = [path.name for path in person.home.rglob("*") if ".certosa" not in path.parts]
    return {*files, *(one["name"] for one in (*credentials, *agents))} - {"assistant"}


@pytest.mark.parametrize("begin", LATE)
def test_a_late_body_leaves_nothing_with_a_namesake(
    server: RealServer, begin: Callable[[Person], Late]
) -> None:
    old = server.new_user(f"late-{begin.__name__.replace('_', '-')}")
    control, late = begin(old), begin(old)
    assert control.finish()[0] in (200, 201)
    assert names_kept(old)
    delete(server, old.name)
    new = server.new_user(old.name)
    status, answer = late.finish()
    assert (status, answer["error"]["code"]) == (401, "invalid_token")
    assert names_kept(new) == set()


@pytest.mark.parametrize("begin", LATE)
def test_a_late_body_of_a_disabled_user_is_kept_nowhere(
    server: RealServer, begin: Callable[[Person], Late]
) -> None:
    grace = server.new_user(f"off-{begin.__name__.replace('_', '-')}")
    late = begin(grace)
    disable(server, grace.name)
    status, answer = late.finish()
    assert (status, answer["error"]["code"]) == (401, "invalid_token")
    server.admin.call("POST", f"/v1/users/{grace.name}/enable")
    assert names_kept(grace) == set()
