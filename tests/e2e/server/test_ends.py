"""How a server ends, and how it does not begin: nothing is left, and a person is told why."""

import os
import signal
import socket
import time
from collections.abc import Iterator

import openai
import pytest

from tests.fakes.model_server import FakeModelServer, Script
from tests.fakes.real_server import (
    FAKE_AGENT,
    LIMIT_S,
    UNATTACKED,
    Person,
    RealServer,
    below,
    own_directory,
    real_server,
    until,
    wait_gone,
    with_model,
)
from tests.fakes.running_turn import Running, code, sleeping


@pytest.fixture
def mortal(model: FakeModelServer) -> Iterator[RealServer]:
    """A server of the test's own, to be ended by it."""
    with real_server(with_model(model.url) | {"server": {"grace_s": 20.0}}, before=UNATTACKED) as server:
        yield server


def add(server: RealServer, name: str) -> Person:
    person = server.new_user(name)
    person.add_agent("fake", FAKE_AGENT)
    return person


def pids_of(server: RealServer) -> list[int]:
    return [server.process.pid, *(p.pid for p in below(server.process.pid))]


def refuses(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) != 0


def refused_turn(person: Person) -> openai.APIError | None:
    try:
        person.ask("help")
    except openai.APIError as error:
        return error
    return None


def mounts(server: RealServer) -> list[str]:
    """All but those of servers of other processes of this run."""
    with open("/proc/self/mountinfo") as file:
        return [line for line in file if "/certosa-e2e-" not in line or str(server.directory) in line]


def test_sigterm_lets_a_turn_end_takes_no_other_and_leaves_nothing(
    mortal: RealServer, model: FakeModelServer
) -> None:
    alice, before = add(mortal, "alice"), mounts(mortal)
    alice.run("true")
    pids = pids_of(mortal)
    assert len(pids) >= 5
    model.say(Script(text="tok " * 30, rate_per_s=30))
    with Running(alice, "go on", "s", "fake") as turn:
        turn.wait_for("text")
        mortal.terminate()
        mortal.wait_logged("shutdown_begun")
        refused = until("a refusal", lambda: refused_turn(alice))  # the word has to reach core first
        assert isinstance(refused, openai.APIConnectionError) or "stopping" in str(refused)
        assert turn.wait() is None
    assert turn.done.text == "tok " * 30
    assert mortal.wait() == 0
    assert wait_gone(pids, 2) == []
    assert mounts(mortal) == before
    assert refuses(mortal.hub_port)
    assert refuses(mortal.admin_port)
    assert not (mortal.data_dir / "_system" / "admin.sock").exists()
    assert mortal.logged("core_stopped", orderly=True)
    # and it starts again, with all that it had
    mortal.start()
    model.say(Script(text="yes"))
    assert alice.ask("do you remember?", "s", "fake").text == "yes"
    assert model.requests[-1].body["messages"][-2]["content"] == "tok " * 30


def test_sigterm_cancels_a_turn_that_outlasts_the_grace() -> None:
    with real_server({"server": {"grace_s": 0.3}}, before=UNATTACKED) as server:
        alice = server.new_user("alice")
        with sleeping(alice, "s") as (turn, _):
            pids = pids_of(server)
            server.terminate()
            assert code(turn.wait()) == "cancelled"
        assert server.wait() == 0
        assert wait_gone(pids, 2) == []


def test_core_can_be_kept_to_one_cpu_and_nobody_else_is() -> None:
    with real_server({"server": {"core_cpus": "one"}}, before=UNATTACKED) as server:
        everywhere = os.sched_getaffinity(0)
        core, egress = server.pid("core"), server.pid("egress")
        threads = [int(thread) for thread in os.listdir(f"/proc/{core}/task")]
        assert len(threads) > 1
        assert {frozenset(os.sched_getaffinity(thread)) for thread in threads} == {
            frozenset([max(everywhere)])
        }
        assert os.sched_getaffinity(egress) == os.sched_getaffinity(server.process.pid) == everywhere


def test_a_second_sigterm_means_now(mortal: RealServer) -> None:
    alice = add(mortal, "alice")
    with sleeping(alice) as (turn, _):
        pids = pids_of(mortal)
        mortal.terminate()
        mortal.wait_logged("shutdown_begun")
        again_s = time.monotonic()
        mortal.terminate()
        mortal.wait()
        assert time.monotonic() - again_s < 10  # of the 20 s of grace
        assert turn.wait() is not None
    assert wait_gone(pids, 2) == []
    assert refuses(mortal.hub_port)


def test_sigkill_of_the_spawner_leaves_nothing_running(mortal: RealServer) -> None:
    alice, bob, before = add(mortal, "alice"), add(mortal, "bob"), mounts(mortal)
    with sleeping(alice) as (turn, _), sleeping(bob, "s") as (other, _):
        pids = pids_of(mortal)
        assert len(pids) >= 9
        mortal.process.kill()
        assert wait_gone(pids, 2) == []
        assert turn.wait() is not None
        assert other.wait() is not None
    mortal.wait()
    assert refuses(mortal.hub_port)
    assert mounts(mortal) == before
    mortal.start()  # nothing of the old life is in the way
    assert alice.run("echo back").startswith("back")


def refusal(server: RealServer) -> str:
    """What a server said that could not start."""
    status = server.wait(LIMIT_S)
    said = server.log_path.read_text()
    assert status not in (0, -signal.SIGKILL), said
    assert "Traceback" not in said
    assert refuses(server.hub_port) or "another server" in said or "cannot listen" in said
    return said


def test_a_readable_master_key_ends_the_server_with_a_sentence() -> None:
    with real_server(before=UNATTACKED) as server:
        server.new_user("alice")
        key = server.data_dir / "_keys" / "master.key"
        assert server.stop() == 0
        key.chmod(0o644)
        server.log_path.write_text("")
        server.begin()
        said = refusal(server)
        assert "master.key" in said
        assert "chmod 600" in said
        key.chmod(0o600)
        server.log_path.write_text("")
        server.start()


def test_a_lost_master_key_ends_the_server_with_a_sentence() -> None:
    with real_server(before=UNATTACKED) as server:
        server.new_user("alice")
        key = server.data_dir / "_keys" / "master.key"
        assert server.stop() == 0
        key.rename(server.directory / "aside.key")
        server.log_path.write_text("")
        server.begin()
        assert "master.key" in refusal(server)
        assert not key.exists()


def test_a_port_in_use_and_a_directory_in_use_are_told(server: RealServer) -> None:
    with real_server(before=UNATTACKED, start=False) as second:
        second.begin(hub_port=server.hub_port)
        assert f"cannot listen on 127.0.0.1 port {server.hub_port}" in refusal(second)
    with own_directory() as directory:
        third = RealServer(directory, {}, before=UNATTACKED)
        third.use_data_of(server)
        third.begin()
        assert f"another server uses {server.data_dir}" in refusal(third)
    alive = server.new_user("witness")
    assert alive.ask("help").finish == "stop"


@pytest.mark.parametrize(
    ("sections", "keys", "said"),
    [
        ({"hub": {"prot": 1}}, "", "hub.prot: unknown key; did you mean port?"),
        ({"hub": {"max_turns": "many"}}, "", "hub.max_turns"),
        ({"verbs": {"session.load": "maybe"}}, "", "verbs"),
        ({"agent": {"provider": "nowhere"}}, "", "agent.provider: no provider 'nowhere'"),
        ({"jail": {"python": "python3"}}, "", "jail.python: not an absolute path"),
        ({"jail": {"python": "/nonexistent/python3"}}, "", "/nonexistent/python3"),
        ({}, "this is not TOML", "the provider key file is not TOML"),
        (
            {"providers.fake": {"base_url": "http://127.0.0.1:1/v1"}},
            "fake = 7",
            "the provider key file: fake",
        ),
    ],
)
def test_a_wrong_configuration_is_told_by_key(
    sections: dict[str, dict[str, object]], keys: str, said: str
) -> None:
    with real_server(sections, keys=keys, before=UNATTACKED, start=False) as server:
        server.begin()
        assert said in refusal(server)


def test_a_key_file_that_others_may_read_is_told() -> None:
    with real_server(before=UNATTACKED, start=False) as server:
        server.write_keys("")
        path = server.data_dir / "_keys" / "provider-keys.toml"
        path.chmod(0o644)
        server.begin()
        said = refusal(server)
        assert str(path) in said
        assert "chmod 600" in said
        path.chmod(0o600)
        if os.geteuid() == 0:
            os.chown(path, 0, 0)
        server.log_path.write_text("")
        server.start()
