"""What egress keeps is in egress and nowhere else: not in logs, answers, databases or other memory.

Five secrets are used by turns and requests of a real server, and refused and echoed by the other end: a
provider's key of the key file, a user's own in the vault, this server's secret at an authorization server,
the tokens that come of it, and what an agent's http_fetch is filled in with. Each search has a control:
something that has to be found there is.
"""

import json
import os
import urllib.request
from collections.abc import Iterator
from typing import NamedTuple

import openai
import pytest

from tests.fakes.auth_server import SECRET, FakeAuthServer, running_auth_server
from tests.fakes.model_server import Call, FakeModelServer, Script, running_model_server
from tests.fakes.outside_server import OutsideServer
from tests.fakes.real_server import (
    LIMIT_S,
    Person,
    RealServer,
    below,
    new_person,
    real_server,
    run_certosa,
    until,
    with_model,
    workers,
)
from tests.fakes.search import Needles, files

CANARY = "sk-canary-7d1f4b0c9a8e4f62b3d5"
OWN = "sk-owned-canary-3c2b1a0f9e8d7c6b"
FETCHED = "sk-fetched-canary-5e4d3c2b1a0f9e8d"

as_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root may read the memory of these processes"
)  # fmt: skip


@pytest.fixture(scope="module")
def shared_model() -> Iterator[FakeModelServer]:
    """Of this module's own: what others send theirs has other keys."""
    with running_model_server(keep_alive=False) as fake:
        yield fake


@pytest.fixture(scope="module")
def auth() -> Iterator[FakeAuthServer]:
    with running_auth_server() as running:
        yield running


@pytest.fixture(scope="module")
def server(
    shared_model: FakeModelServer, auth: FakeAuthServer, shared_outside: OutsideServer
) -> Iterator[RealServer]:
    rule = {
        "host": "127.0.0.1", "scheme": "http", "port": shared_outside.port, "methods": ["GET", "POST"],
        "networks": ["127.0.0.0/8"], "users": ["olga"],
    }  # fmt: skip
    sections = {
        **with_model(shared_model.url), "oauth.acme": auth.section(), "egress": {"allow": [rule]}
    }  # fmt: skip
    with real_server(sections, keys=f'fake = "{CANARY}"\n') as running:
        yield running


@pytest.fixture(scope="module")
def alice(server: RealServer) -> Person:
    return new_person(server, "alice")


@pytest.fixture(scope="module")
def olga(server: RealServer) -> Person:
    """She has a key of her own."""
    return new_person(server, "olga")


class Used(NamedTuple):
    """What the clients were told, and every secret that was used."""

    answers: list[str]
    secrets: dict[str, Needles]


@pytest.fixture(scope="module")
def used(
    server: RealServer, alice: Person, olga: Person, shared_model: FakeModelServer, auth: FakeAuthServer,
    shared_outside: OutsideServer,
) -> Used:  # fmt: skip
    """Each was used, refused, and echoed by the other end in every way."""
    answers = [alice.ask("hi", "kept", "fake").text, alice.run("env; cat /proc/*/environ /proc/*/cmdline")]
    for person, key in ((alice, CANARY), (olga, OWN)):
        if person is olga:
            answers.append(certosa(server, "credential set --provider fake", OWN, olga))
            answers.append(olga.ask("hi", "kept", "fake").text)
        answers += echoed(shared_model, person, key)
    answers.append(certosa(server, "oauth secret acme", SECRET))
    auth.misbehave("echo")
    connect = "credential connect tv --with acme --device --no-wait --json"
    certosa(server, connect, "", olga)
    answers.append(until("the end of the first", lambda: _settled(server, olga, "tv")))
    begun = json.loads(certosa(server, connect, "", olga))
    auth.decide(begun["user_code"])
    answers.append(until("the connection", lambda: _settled(server, olga, "tv")))
    answers += fetched(server, olga, shared_model, shared_outside)
    answers.append(certosa(server, "credential list --json", "", olga))
    (family, *_) = auth.families
    named = {
        "the key file's": CANARY, "a user's own": OWN, "the client's": SECRET,
        "a fetch's": FETCHED, "an access token": family.access[0], "a refresh token": family.refresh[0],
    }  # fmt: skip
    alice.run("true")
    return Used(answers, {name: Needles(value) for name, value in named.items()})


def _settled(server: RealServer, person: Person, name: str) -> str:
    """What came of a connection, once something has; empty until then."""
    request = urllib.request.Request(
        f"{server.url}/v1/credentials/{name}/connect", headers={"Authorization": f"Bearer {person.token}"}
    )
    with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
        text: str = answer.read().decode()
    return "" if json.loads(text)["status"] == "waiting" else text


def fetched(server: RealServer, person: Person, model: FakeModelServer, outside: OutsideServer) -> list[str]:
    """What a client is told of fetches that are filled in, echoed, and refused where it has no place."""
    line = f"credential set web --host 127.0.0.1 --port {outside.port} --http --path /echo"
    said = [certosa(server, line, FETCHED, person)]
    bearer = {"Authorization": "Bearer {{credential:web}}"}
    for arguments in (
        {"url": f"{outside.url}/echo/it", "headers": bearer},
        {"url": f"{outside.url}/hello", "headers": bearer},
        {"url": f"{outside.url}/echo/body", "method": "POST", "body": "{{credential:web}}"},
        {"url": f"{outside.url}/echo/kept", "headers": bearer, "save_to": "kept.txt"},
    ):
        call = Call("http_fetch", json.dumps(arguments), "c1")
        model.say(Script(calls=(call,)), Script(text="Done."))
        done = person.ask("fetch it", "kept", "fake")
        said.append(f"{done.text} {done.output}")
    said.append((person.home / "kept.txt").read_text())
    return said


def echoed(model: FakeModelServer, person: Person, key: str) -> list[str]:
    """What a client is told where the model server repeats the key in every way."""
    echo = f"no such key: Bearer {key}"
    model.say(
        Script(status=401, error_body=f'{{"error": {{"message": "{echo}"}}}}'),
        Script(status=500, error_body=echo),
        Script(raw_events=(f'data: {{"error": {{"message": "{echo}"}}}}\n\n',)),
        Script(raw_events=(f"data: {{{key}\n\n",)),
        Script(status=307, headers={"Location": f"http://127.0.0.1:1/{key}"}),
    )
    said = []
    for _ in range(5):
        with pytest.raises(openai.APIError) as raised:
            person.ask("again", "kept", "fake")
        said.append(f"{raised.value} {raised.value.body}")
    return said


def certosa(server: RealServer, line: str, value: str = "", person: Person | None = None) -> str:
    """What a command prints; AssertionError where it fails."""
    done = run_certosa(server, line, value, person)
    return done.stdout + done.stderr


def everybody(server: RealServer) -> set[int]:
    """The server's processes: spawner, core, egress, template, jails."""
    return {server.process.pid, *(p.pid for p in below(server.process.pid))}


def test_each_is_sent_to_the_one_request_that_may_have_it(
    used: Used, shared_model: FakeModelServer, auth: FakeAuthServer, shared_outside: OutsideServer
) -> None:
    bearers = [r.headers["Authorization"] for r in shared_model.requests if "Authorization" in r.headers]
    assert {f"Bearer {CANARY}", f"Bearer {OWN}"} == set(bearers)
    assert len(bearers) >= 12
    sent = [head.splitlines()[0] for head in shared_outside.heads if FETCHED in head]
    assert sent == ["GET /echo/it", "GET /echo/kept"]
    assert auth.families  # it let us in, by its client's secret
    bodies = json.dumps([request.body for request in shared_model.requests])
    assert [name for name, needles in used.secrets.items() if needles.within(bodies.encode())] == []


def test_the_doctor_let_this_server_serve(server: RealServer) -> None:
    assert server.logged("doctor_passed")


def test_they_are_in_no_answer(used: Used) -> None:
    told = "\n".join(used.answers).encode()
    assert Needles("no such key").within(told)  # what the other end said did come, without them
    assert told.count(b"Bearer [struck out]") >= 2
    assert [name for name, needles in used.secrets.items() if needles.within(told)] == []
    assert CANARY[3:].encode() not in told


def test_they_are_in_no_file_but_the_keys_own(server: RealServer, used: Used) -> None:
    data = server.data_dir
    # the log, the audit log and the databases are among what is looked at, and have what they should have
    assert server.log_path in Needles("grant_kept").in_files(server.directory)
    assert any(path.parent.name == "audit" for path in Needles("connected with acme").in_files(data))
    assert any(path.name.startswith("vault.db") for path in Needles("verifier").in_files(data))
    assert any(path.name.startswith("core.db") for path in Needles("olga").in_files(data))
    assert list(files(data / "sealed"))
    found = {name: needles.in_files(server.directory) for name, needles in used.secrets.items()}
    assert found.pop("the key file's") == [data / "_keys" / "provider-keys.toml"]
    assert [name for name, paths in found.items() if paths] == []


def test_they_are_in_no_command_line_and_no_environment(server: RealServer, used: Used) -> None:
    pids = everybody(server)
    assert len(pids) >= 5
    assert Needles("--data-dir").in_arguments(server.pid("core"))
    for name, needles in used.secrets.items():
        assert [pid for pid in pids if needles.in_arguments(pid)] == [], name
    if os.geteuid() == 0:
        assert Needles("/usr/local/bin").in_environment(server.pid("core"))
        for name, needles in used.secrets.items():
            assert [pid for pid in pids if needles.in_environment(pid)] == [], name


@as_root
def test_they_are_behind_no_descriptor_but_of_the_key_file(server: RealServer, used: Used) -> None:
    assert str(server.log_path) in Needles("doctor_passed").in_descriptors(server.process.pid)
    key_file = str(server.data_dir / "_keys" / "provider-keys.toml")
    for name, needles in used.secrets.items():
        found = {path for pid in everybody(server) for path in needles.in_descriptors(pid)}
        assert found <= ({key_file} if name == "the key file's" else set()), name


@as_root
def test_they_are_in_the_memory_of_egress_alone(server: RealServer, used: Used) -> None:
    egress, core = server.pid("egress"), server.pid("core")
    others = everybody(server) - {egress}
    assert core in others
    assert len(others) >= 4
    (jail, *_) = workers(server)
    assert jail.pid in others
    assert Needles("grant_kept").in_memory(egress)
    assert Needles("olga").in_memory(core)
    assert Needles("jail.peer").in_memory(jail.pid)
    assert used.secrets["the key file's"].in_memory(egress)
    for name, needles in used.secrets.items():
        assert [pid for pid in others if needles.in_memory(pid)] == [], name


@as_root
def test_the_master_key_is_in_the_memory_of_egress_at_most(server: RealServer, used: Used) -> None:
    key = (server.data_dir / "_keys" / "master.key").read_bytes()
    assert len(key) >= 16
    needles = Needles(key.hex())
    needles.forms = {key}
    assert [pid for pid in everybody(server) - {server.pid("egress")} if needles.in_memory(pid)] == []
