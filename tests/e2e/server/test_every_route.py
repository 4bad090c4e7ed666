"""Every route of the API, asked by another, or with what is left of a user of the same name.

What belongs to somebody else has to be as what never was: the same status, the same words.
"""

import http.client
import json
import re
from contextlib import closing
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

from core.hub.openapi.route import Route
from core.hub.openapi.table import ROUTES
from tests.fakes.real_server import LIMIT_S, Person, RealServer

_OPEN = {
    "/healthz", "/readyz", "/v1/openapi.json", "/v1/schema", "/v1/schema/{name}",
    "/v1/oauth/{provider}/callback",  # a browser comes here, with a state that is worth nothing to others
}  # fmt: skip
_BODIES: dict[str, Any] = {
    "patch /v1/sessions/{id}": {"title": "mine"},
    "post /v1/sessions/{id}/fork": {"at": 1, "id": "forked"},
    "put /v1/files/content": "overwritten",
    "put /v1/agents/{name}": {"prompt": "mine"},
    "put /v1/credentials/{name}": {"kind": "key", "host": "api.example.org", "value": "the-others-key"},
}
# of what goes by a name of the user's own, only the same name of another's is asked for
_OWN_NAMES = ("/v1/files", "/v1/agents", "/v1/credentials", "/v1/models", "put ")
NAMES = [f"{route.method} {route.path}" for route in ROUTES]


class Answered(NamedTuple):
    """Status and text."""

    status: int
    text: str


class Things(NamedTuple):
    """What a user has: ids and names that go into paths, and a word that is in all of it."""

    session: str
    turn: str
    name: str
    word: str

    def path(self, route: Route) -> str:
        """A route's path, with the query that it is of interest with."""
        path = route.path.format(
            id=self.session, turn=self.turn, name=self.name, provider="nobody", rule="rule_0"
        )
        queries = {
            "/v1/files": f"?path={self.name}.txt",
            "/v1/files/content": f"?path={self.name}.txt",
            "/v1/sessions/search": f"?q={self.word}",
            "/v1/sessions/{id}/events": "?after=0&until=idle",
        }
        return path + queries.get(route.path, "")


def ask(person: Person, route: Route, things: Things) -> Answered:
    """Send a request, as that person, about those things."""
    body = _BODIES.get(f"{route.method} {route.path}", route.example)
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode() if body else None
    headers = {"Authorization": f"Bearer {person.token}"}
    if route.path == "/v1/ws":
        headers |= {"Connection": "upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    if route.method == "post" and route.path in ("/v1/chat/completions", "/v1/messages"):
        headers["X-Certosa-Session"] = things.session
        data = data.replace(b'"help"', b'"what do you remember?"') if data else data
    with closing(http.client.HTTPConnection("127.0.0.1", person.server.hub_port, timeout=LIMIT_S)) as http_:
        http_.request(route.method.upper(), things.path(route), data, headers)
        answer = http_.getresponse()
        return Answered(answer.status, answer.read().decode("utf-8", "replace") + str(answer.headers))


def give_things(person: Person) -> Things:
    """A session with a turn and metadata, a file, an agent and a credential, a word in each."""
    word = f"canary{uuid4().hex}"
    done = person.ask(f"remember {word}", f"s-{word}")
    things = Things(f"s-{word}", done.turn, f"n-{word}", word)
    with person.client() as client:
        client.chat.completions.create(
            model="assistant",
            messages=[{"role": "user", "content": f"my word is {word}"}],
            metadata={"word": word},
            user=word,
            extra_headers={"X-Certosa-Session": things.session},
        )
        client.put(f"/agents/{things.name}", cast_to=object, body={"prompt": word})
        terms = {"kind": "key", "host": f"{word}.example", "value": f"{word}-key"}
        client.put(f"/credentials/{things.name}", cast_to=object, body=terms)
    person.put(f"{things.name}.txt", word)
    return things


def portrait(person: Person, things: Things) -> list[str]:
    """What they have, as they see it."""
    paths = (
        "/v1/sessions/{id}", "/v1/sessions", "/v1/files/content", "/v1/agents/{name}", "/v1/credentials"
    )  # fmt: skip
    shown = [ask(person, route, things) for route in ROUTES if route.method == "get" and route.path in paths]
    assert all(answer.status == 200 and things.word in answer.text for answer in shown)
    return [answer.text.partition("\n")[0] for answer in shown]


def plain(answer: Answered, things: Things) -> Answered:
    """An answer without what is of that request alone."""
    text = answer.text.replace(things.session, "ID").replace(things.turn, "TURN").replace(things.name, "NAME")
    text = re.sub(r'"user":"[^"]*"', "", text)
    text = re.sub(r"(req|turn|chatcmpl|msg|rule)[-_][0-9a-f]+", r"\1", text)
    text = re.sub(r'"created(_s|_at)?":[^,}]*|Date: [^\n]*|Content-Length: [^\n]*', "", text)
    return Answered(answer.status, text)


@pytest.fixture(scope="module")
def owner(server: RealServer) -> Person:
    return server.new_user("route-owner")


def stranger(server: RealServer) -> Person:
    """Somebody who has nothing yet."""
    return server.new_user(f"route-{uuid4().hex[:12]}")


@pytest.fixture(scope="module")
def owned(owner: Person) -> Things:
    return give_things(owner)


@pytest.mark.parametrize("route", ROUTES, ids=NAMES)
def test_anothers_things_are_as_what_never_was(
    server: RealServer, owner: Person, owned: Things, route: Route
) -> None:
    before = portrait(owner, owned)
    never = Things(f"s-{uuid4().hex}", f"turn_{uuid4().hex[:16]}", f"n-{uuid4().hex}", f"canary{uuid4().hex}")
    asked = ask(stranger(server), route, owned)
    known = (owned.session, owned.turn, owned.name)
    said = asked.text
    for id_ in known:
        said = said.replace(id_, "")
    assert owned.word not in said.replace(f"?q={owned.word}", "")
    # what it did, it did to things of their own of that name
    assert portrait(owner, owned) == before
    if not f"{route.method} {route.path}".startswith(_OWN_NAMES) and not route.path.startswith(_OWN_NAMES):
        assert plain(asked, owned) == plain(ask(stranger(server), route, never), never)


def test_what_is_left_of_a_deleted_user_opens_nothing_and_a_namesake_finds_nothing(
    server: RealServer,
) -> None:
    old = server.new_user("route-twice")
    things = give_things(old)
    server.admin.call("DELETE", f"/v1/users/{old.name}")
    new = server.new_user(old.name)
    fresh = stranger(server)
    for route in ROUTES:
        if route.path not in _OPEN:
            assert ask(old, route, things).status == 401, route
        if route.method in ("get", "head", "delete"):
            answer = ask(new, route, things)
            assert things.word not in answer.text.replace(things.session, "").replace(things.name, ""), route
            assert plain(answer, things) == plain(ask(fresh, route, things), things), route
    # and nothing stands in the way of what the second one does
    assert give_things(new).word in new.ask("what do you remember?", things.session).text
    portrait(new, give_things(new))
