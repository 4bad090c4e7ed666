"""Requests of agents outside, by the real server: rules, credentials, bodies, the end of a turn."""

import json
import os

import openai
import pytest

from tests.e2e.server.test_credentials import certosa
from tests.fakes.memory import holds
from tests.fakes.model_server import Call, FakeModelServer, Script
from tests.fakes.outside_server import OutsideServer
from tests.fakes.real_server import LIMIT_S, Done, Person, RealServer, below, new_person, until
from tests.fakes.search import files

VALUE = "sk-outside-canary-7a6b5c4d3e"
_MB = 1 << 20


@pytest.fixture(scope="module")
def outside(shared_outside: OutsideServer) -> OutsideServer:
    return shared_outside


@pytest.fixture(scope="module")
def fay(server: RealServer, outside: OutsideServer) -> Person:
    """A user whose agent may speak to the server outside."""
    person = new_person(server, "fay")
    certosa(server, f"egress allow 127.0.0.1 --port {outside.port} --http --methods GET,PUT", "", person)
    return person


def fetched(person: Person, model: FakeModelServer, **arguments: object) -> Done:
    """A turn in which the model calls http_fetch."""
    model.say(Script(calls=(Call("http_fetch", json.dumps(arguments), "c1"),)), Script(text="Done."))
    return person.ask("go on", model="fake")


def test_a_rule_of_ones_own_is_what_lets_an_agent_ask_outside(
    server: RealServer, outside: OutsideServer
) -> None:
    greta = server.new_user("greta")
    url, before = f"{outside.url}/hello", list(outside.heads)
    refused = greta.ask(f"fetch {url}")
    assert refused.calls == [("http_fetch", json.dumps({"url": url}, separators=(",", ":")))]
    assert f"certosa egress allow 127.0.0.1 --port {outside.port} --http --methods GET" in refused.output
    assert outside.heads == before

    added = certosa(server, f"egress allow 127.0.0.1 --port {outside.port} --http --json", "", greta)
    assert "hello from outside" in greta.ask(f"fetch {url}").output
    listed = json.loads(certosa(server, "egress list --json", "", greta))
    assert [row["id"] for row in listed["rules"]] == [json.loads(added)["id"]]
    assert listed["operator"]["ceiling"][0]["port"] == outside.port
    assert json.loads(added)["id"] in certosa(server, "egress list --user greta")

    used = json.loads(certosa(server, "usage --mine --json", "", greta))["data"]
    (row,) = [row for row in used if row["kind"] == "fetch"]
    assert row["requests"] == 1
    assert row["bytes"] > len("hello from outside")
    changed = ["egress_rule_changed", "egress_rule_added", "egress_rule_changed"]
    expected = sorted(["egress_refused", *changed, "egress_allowed"])

    def all_there() -> bool:
        return sorted(kind for kind in kinds(server, "greta") if "egress" in kind) == expected

    until("the audit's lines", all_there)

    certosa(server, f"egress remove {listed['rules'][0]['id']}", "", greta)
    assert "no rule lets the agent GET" in greta.ask(f"fetch {url}").output


def kinds(server: RealServer, user: str) -> list[str]:
    """Of a user's lines in the audit log, the oldest first; notes come within a second."""
    lines = json.loads(certosa(server, f"audit show --user {user} --json"))["lines"]
    return [line["kind"] for line in sorted(lines, key=lambda line: int(line["seq"]))]


def test_a_credential_is_used_by_an_agent_that_never_sees_it(
    server: RealServer, outside: OutsideServer, fay: Person, model: FakeModelServer
) -> None:
    line = f"credential set api --host 127.0.0.1 --port {outside.port} --http --path /echo"
    certosa(server, line, VALUE, fay)
    headers = {"Authorization": "Bearer {{credential:api}}", "X-Mine": "yes"}
    done = fetched(fay, model, url=f"{outside.url}/echo/1", headers=headers)
    assert done.results[0][0]
    assert "X-Mine: yes" in done.output
    assert "Authorization: Bearer [struck out]" in done.output
    assert f"Bearer {VALUE}" in outside.heads[-1]

    before = len(outside.heads)
    elsewhere = fetched(fay, model, url=f"{outside.url}/hello", headers=headers)
    assert "is not for this path" in elsewhere.output
    in_body = fetched(fay, model, url=f"{outside.url}/echo/2", method="PUT", body="{{credential:api}}")
    assert "stands in the body" in in_body.output
    assert len(outside.heads) == before
    expected = {"credential_set", "credential_used", "credential_refused"}
    until("the audit's lines", lambda: expected <= set(kinds(server, "fay")))

    needle = VALUE.encode()
    assert [path for path in files(server.directory) if needle in path.read_bytes()] == []
    if os.geteuid() == 0:  # only root may read the memory of these processes
        egress = server.pid("egress")
        assert holds(egress, needle)
        others = {server.process.pid, *(p.pid for p in below(server.process.pid))} - {egress}
        assert [pid for pid in others if holds(pid, needle)] == []


def test_bodies_of_any_length_go_both_ways_by_files(
    outside: OutsideServer, fay: Person, model: FakeModelServer
) -> None:
    fay.put("big.bin", "x" * (3 * _MB))
    sent = fetched(fay, model, url=f"{outside.url}/hello", method="PUT", body_file="big.bin")
    assert sent.results[0][0], sent.output
    assert outside.bodies[-1] == b"x" * (3 * _MB)
    got = fetched(fay, model, url=f"{outside.url}/many/{8 * _MB}", save_to="came.bin")
    assert f"[{8 * _MB} bytes written to came.bin]" in got.output
    assert (fay.home / "came.bin").read_bytes() == bytes(8 * _MB)


def test_a_turn_that_is_cancelled_leaves_the_server_outside(outside: OutsideServer, fay: Person) -> None:
    outside.held.clear()
    outside.left.clear()
    with fay.client() as client:
        raw = client.chat.completions.with_raw_response.create(
            model="assistant", stream=True,
            messages=[{"role": "user", "content": f"fetch {outside.url}/hold"}],
        )  # fmt: skip
        assert outside.held.wait(LIMIT_S)
        assert not outside.left.is_set()
        client.post(f"/turns/{raw.headers['X-Certosa-Turn']}/cancel", cast_to=object)
        assert outside.left.wait(LIMIT_S)
        with pytest.raises(openai.APIError):
            list(raw.parse())
    assert "hello from outside" in fay.ask(f"fetch {outside.url}/hello").output


def test_a_jail_reaches_the_same_server_by_no_way_of_its_own(outside: OutsideServer, fay: Person) -> None:
    code = f"import socket; socket.create_connection(('127.0.0.1', {outside.port}), 5)"
    assert "Error" in fay.python(code)
    assert "hello from outside" in fay.ask(f"fetch {outside.url}/hello").output
