"""Limits of jails on a real server: who meets one is told which, nobody else notices, and it is counted."""

import urllib.request
from collections.abc import Iterator
from contextlib import closing

import openai
import pytest

from jail.host.cgroups import Cgroups
from tests.fakes.plain_client import PlainClient
from tests.fakes.real_server import UNATTACKED, RealServer, real_server, until

MIB = 1 << 20
# many small processes, so that the kernel takes the worker; a large one is its first choice otherwise
TAKE_ALL = (
    "import os, time; open('/proc/1/oom_score_adj', 'w').write('1000'); "
    "open('/proc/self/oom_score_adj', 'w').write('0'); "
    "[os.fork() for _ in range(4)]; held = bytearray(16 << 20); time.sleep(30)"
)


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    sections = {
        "jail": {"disk_bytes": 8 * MIB, "memory_bytes": 512 * MIB},
        "jail.users.mara": {"memory_bytes": 64 * MIB, "disk_bytes": 0},
    }
    with real_server(sections, before=UNATTACKED) as running:
        yield running


@pytest.fixture(scope="module")
def limits_memory(tmp_path_factory: pytest.TempPathFactory) -> None:
    with closing(Cgroups.begin(tmp_path_factory.mktemp("probe"))) as cgroups:
        if "memory" not in cgroups.controllers:
            pytest.skip("no control group for memory may be made here")


def _metrics(server: RealServer) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.admin_port}/metrics", timeout=20) as answer:
        return str(answer.read().decode())


@pytest.mark.usefixtures("limits_memory")
def test_who_runs_out_of_memory_is_told_the_limit_and_others_go_on(server: RealServer) -> None:
    mara, neighbour = server.new_user("mara"), server.new_user("nina")
    assert neighbour.run("echo before").startswith("before")

    with pytest.raises(openai.APIError) as failed:
        mara.ask(f"python: {TAKE_ALL}")

    assert "ran out of memory" in str(failed.value)
    assert "64 MiB" in str(failed.value)
    assert neighbour.run("echo after").startswith("after")
    assert server.wait_logged("jail_exited", limit="memory")["limit_bytes"] == 64 * MIB
    assert 'certosa_jail_limits_total{limit="memory"} 1.0' in _metrics(server)
    # and the next jail is as good as any
    assert mara.run("echo again").startswith("again")
    # the control: who has another limit may take as much
    assert neighbour.python("print(len(bytearray(128 << 20)))").startswith(str(128 * MIB))


def test_over_the_disk_limit_no_turn_begins_until_files_are_deleted(server: RealServer) -> None:
    dora, mate = server.new_user("dora"), server.new_user("mate")
    assert dora.run("head -c 9M /dev/zero > big && echo written").startswith("written")

    def refused() -> openai.APIStatusError | None:
        try:
            dora.run("echo more")
        except openai.APIStatusError as error:
            return error
        return None

    error = until("a turn is refused", refused)

    assert (error.status_code, error.code) == (507, "disk_quota")
    assert "limit is 8 MiB" in str(error)
    # nor is an upload, which would only make it worse; another user is not touched
    files = PlainClient(server.url, {"Authorization": f"Bearer {dora.token}"})
    answer = files.ask("PUT", "/v1/files/content?path=more", b"x")
    assert (answer.status, answer.error["code"]) == (507, "disk_quota")
    assert mate.run("echo free").startswith("free")
    assert 'certosa_turns_refused_total{reason="disk_quota"}' in _metrics(server)

    assert files.ask("DELETE", "/v1/files?path=big").status == 200

    def again() -> bool:
        error = refused()
        assert error is None or error.status_code == 507
        return error is None

    until("turns begin again", again)


def test_who_writes_on_far_past_the_limit_is_stopped(server: RealServer) -> None:
    grow = "i=0; while [ $i -lt 400 ]; do head -c 1M /dev/zero > part$i; i=$((i+1)); sleep 0.2; done"

    def write_on() -> tuple[str, int]:
        """What somebody was told who was stopped, and what their home holds."""
        for number in range(4):  # a busy machine may not look twice within the time that one command has
            walt = server.new_user(f"walt{number}")
            try:
                walt.run(grow)
            except openai.APIError as error:
                return str(error), sum(path.stat().st_size for path in walt.home.iterdir())
        raise AssertionError("nobody was stopped")

    told, held_bytes = write_on()
    assert "limit of 8 MiB" in told
    assert held_bytes < 400 * MIB


@pytest.mark.usefixtures("limits_memory")
def test_a_users_limit_changes_at_a_reload_for_their_next_jail(server: RealServer) -> None:
    rhea = server.new_user("rhea")
    take = "print(len(bytearray(128 << 20)))"
    assert rhea.python(take).startswith(str(128 * MIB))

    server.write_config({"jail.users.rhea": {"memory_bytes": 64 * MIB}})
    server.process.send_signal(1)
    server.wait_logged("config_used")
    server.admin.call("POST", "/v1/pool/rhea/kill", {})
    until("the jail is gone", lambda: not _has_jail(server, "rhea"))

    assert str(128 * MIB) not in rhea.python(take)


def _has_jail(server: RealServer, user: str) -> bool:
    return any(jail["user"] == user for jail in server.admin.call("GET", "/v1/pool")["jails"])
