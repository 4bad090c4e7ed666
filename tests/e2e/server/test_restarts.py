"""One process of many dies, or one person is turned away: a clear error, and all others go on."""

import os
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from uuid import uuid4

import openai
import pytest

from tests.fakes.model_server import Call, FakeModelServer, Script
from tests.fakes.real_server import (
    LIMIT_S,
    UNATTACKED,
    Person,
    RealServer,
    alive,
    below,
    new_person,
    real_server,
    until,
    wait_gone,
    with_model,
    workers,
)
from tests.fakes.running_turn import Running, code, sleeping


@pytest.fixture(scope="module")
def server(shared_model: FakeModelServer) -> Iterator[RealServer]:
    with real_server(with_model(shared_model.url), before=UNATTACKED) as running:
        yield running


@pytest.fixture(scope="module")
def alice(server: RealServer) -> Person:
    return new_person(server, "alice")


@pytest.fixture(scope="module")
def bob(server: RealServer) -> Person:
    return new_person(server, "bob")


def test_a_worker_killed_in_mid_turn_is_one_clear_error(alice: Person, bob: Person) -> None:
    bob.run("true")
    with sleeping(alice) as (turn, worker):
        bobs = [p.pid for p in workers(alice.server) if p.pid != worker.pid]
        os.kill(worker.pid, signal.SIGKILL)
        error = turn.wait()
    assert code(error) == "worker"
    assert "your jail ended in the middle of the turn" in str(error)
    assert "Traceback" not in str(error)
    assert alice.run("echo back").startswith("back")
    assert worker.pid not in {p.pid for p in workers(alice.server)}
    assert all(alive(pid) for pid in bobs)
    assert alice.server.wait_logged("jail_exited")


def test_a_worker_killed_while_it_writes_leaves_the_old_file_or_the_new(
    alice: Person, model: FakeModelServer
) -> None:
    size = 100_000
    for round_ in range(4):
        old, new = f"{round_}" * size, "n" * size
        alice.put("big.txt", old)
        alice.run("true")
        worker = first_process(alice)
        arguments = f'{{"path": "big.txt", "content": "{new}"}}'
        model.say(Script(calls=(Call("write_file", arguments),)), Script(text="done"))
        with Running(alice, "write", model="fake") as turn:
            turn.wait_for("tool_call")
            for _ in range(round_ * 2_000):
                pass  # each round kills at another moment
            os.kill(worker, signal.SIGKILL)
            turn.wait()
        assert (alice.home / "big.txt").read_text() in (old, new)
        model.forget()
    assert alice.ask("write big.txt: small").results[0][0]
    assert (alice.home / "big.txt").read_text() == "small"


def first_process(person: Person) -> int:
    """The first process of a person's jail, as core knows it."""
    (pid,) = [
        j["pid"] for j in person.server.admin.call("GET", "/v1/status")["jails"] if j["user"] == person.name
    ]
    return int(pid)


def test_core_killed_comes_back_and_its_jails_do_not(alice: Person, bob: Person) -> None:
    server, session = alice.server, f"s-{uuid4().hex[:8]}"
    bob.run("true")
    with sleeping(alice, session) as (turn, worker):
        old = [p.pid for p in below(worker.pid)] + [p.pid for p in workers(server)]
        core = server.pid("core")
        count = len(server.logged("service_started", service="core"))
        os.kill(core, signal.SIGKILL)
        turn.wait()
    assert turn.error is not None
    assert wait_gone(old, 2) == []
    # a client that tries again by itself gets its answer: the listener stayed open
    with bob.client(max_retries=8) as client:
        answer = client.chat.completions.create(
            model="assistant", messages=[{"role": "user", "content": "run: echo again"}]
        )
    assert "again" in (answer.choices[0].message.content or "")
    server.wait_logged("service_started", count + 1, service="core")
    assert server.pid("core") != core
    server.wait_ready()
    assert alice.ask("help", session).finish == "stop"
    assert server.wait_logged("turns_interrupted", user="alice")["turns"] == 1
    assert journal(server, "alice")[turn.done.turn] == "failed"
    # a client reads its turn's end while that is on its way to the disk
    until("an end for every turn", lambda: "started" not in journal(server, "alice").values())
    assert set(journal(server, "alice").values()) <= {"failed", "ended", "cancelled"}


def journal(server: RealServer, user: str) -> dict[str, str]:
    """The state of each turn, read from a copy of the user's database."""
    copy = server.directory / f"copy-{uuid4().hex[:6]}.db"
    for suffix in ("", "-wal"):
        source = server.data_dir / "sealed" / f"{user}.db{suffix}"
        if source.exists():
            shutil.copyfile(source, f"{copy}{suffix}")
    connection = sqlite3.connect(copy)
    try:
        return dict(connection.execute("SELECT turn, state FROM turns"))
    finally:
        connection.close()


def test_egress_killed_fails_the_stream_and_comes_back(alice: Person, model: FakeModelServer) -> None:
    server = alice.server
    core, egress = server.pid("core"), server.pid("egress")
    count = len(server.logged("service_started", service="egress"))
    model.say(Script(text="tok " * 2_000, rate_per_s=20))
    with Running(alice, "go", model="fake") as turn:
        turn.wait_for("text")
        os.kill(egress, signal.SIGKILL)
        error = turn.wait()
    assert code(error) == "unavailable"
    assert "egress" in str(error)
    assert model.left.acquire(timeout=LIMIT_S)
    server.wait_logged("service_started", count + 1, service="egress")
    with alice.client(max_retries=8) as client:
        answer = client.chat.completions.create(model="fake", messages=[{"role": "user", "content": "hi"}])
    assert answer.choices[0].message.content == "You said: hi"
    assert server.pid("core") == core
    assert alive(core)


def test_a_revoked_token_is_none_at_once_and_another_still_is(alice: Person, server: RealServer) -> None:
    made = server.new_token("alice")
    second = Person(server, "alice", made["token"])
    assert second.ask("help").finish == "stop"
    server.admin.call("DELETE", f"/v1/tokens/{made['token_id']}")
    with pytest.raises(openai.AuthenticationError):
        second.ask("help")
    assert alice.ask("help").finish == "stop"


def test_a_user_disabled_in_mid_turn_is_cut_off_until_enabled(server: RealServer, bob: Person) -> None:
    carl = server.new_user("carl")
    with sleeping(carl) as (turn, _):
        server.admin.call("POST", "/v1/users/carl/disable")
        error = turn.wait()
    assert code(error) == "cancelled"
    with pytest.raises(openai.AuthenticationError):
        carl.ask("help")
    assert bob.ask("help").finish == "stop"
    server.admin.call("POST", "/v1/users/carl/enable")
    assert carl.ask("help").finish == "stop"


def test_a_user_deleted_in_mid_turn_is_gone_with_all_that_was_theirs(server: RealServer, bob: Person) -> None:
    dora = server.new_user("dora")
    dora.ask("remember the word is plover", "s")
    old_home = dora.home
    with sleeping(dora, "s2") as (turn, worker):
        server.admin.call("DELETE", "/v1/users/dora")
        error = turn.wait()
    assert code(error) in ("cancelled", "worker")
    assert wait_gone([worker.pid], 2) == []
    assert not old_home.parent.exists()
    assert not list((server.data_dir / "sealed").glob("dora*"))
    with pytest.raises(openai.AuthenticationError):
        dora.ask("help")
    assert bob.ask("help").finish == "stop"
    again = server.new_user("dora")
    assert "plover" not in again.ask("what do you remember?", "s").text
    with pytest.raises(openai.AuthenticationError):
        dora.ask("help")
