"""The spawner: what core may ask, who dies with whom, and that nothing outlives it."""

import os
import signal
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from jail.host.profile import user_paths
from tests.fakes.jails import USER_UIDS, House, alive, is_root
from tests.fakes.spawner import FakedSpawner, descendants

Begin = Callable[..., FakedSpawner]


@pytest.fixture
def begin(house: House, kind: str) -> Iterator[Begin]:
    """Start spawners that end with the test."""
    spawners: list[FakedSpawner] = []

    def start(**options: Any) -> FakedSpawner:
        spawners.append(FakedSpawner(house, **({"start": kind} | options)))
        return spawners[-1]

    yield start
    for spawner in spawners:
        spawner.__exit__()


def _wait_until_gone(pids: set[int], timeout_s: float) -> set[int]:
    deadline = time.monotonic() + timeout_s
    while (left := {pid for pid in pids if alive(pid)}) and time.monotonic() < deadline:
        time.sleep(0.01)  # no event tells of another's children
    return left


@pytest.mark.wall("services")
def test_services_start_with_what_they_need_and_nothing_else(begin: Begin, house: House) -> None:
    core, egress = begin().begin()

    assert core["flags"] == ["control", "egress", "test"]
    assert egress["flags"] == ["core", "spawner", "test"]
    # 0 to 2, one a flag
    assert core["fds"] == [0, 1, 2, 3, 4, 5]
    assert egress["fds"] == [0, 1, 2, 3, 4, 5]
    for service, identity in ((core, "core"), (egress, "egress")):
        assert service["env"] in (["LANG"], ["LANG", "LC_CTYPE"])
        assert service["umask"] == 0o077
        assert service["no_new_privs"]
        owner = getattr(house.owners, identity).uid if house.owners else os.getuid()
        assert service["uid"] == owner
        if is_root():
            assert service["groups"] == []


@pytest.mark.wall("words")
def test_a_jail_is_started_used_and_killed_at_cores_word(begin: Begin) -> None:
    spawner = begin()
    spawner.begin()

    started = spawner.start_jail(1, "alice")
    assert started["pid"] > 0
    assert spawner.run(1, "echo", "hello") == [0, "hello\n"]

    spawner.ask("KillJail", life=1)
    assert spawner.core.hear("JailExited", life=1)["how"] in ("exit 137", "signal 9")
    assert not alive(started["pid"])


def test_a_worker_that_ends_by_itself_is_told_with_its_status(begin: Begin) -> None:
    spawner = begin(command=["/bin/sh", "-c", "exit 5"])
    spawner.begin()

    spawner.start_jail(1, "alice")

    assert spawner.core.hear("JailExited", life=1)["how"] == "exit 5"


@pytest.mark.wall("jails")
def test_more_jails_than_start_at_once_all_start(begin: Begin) -> None:
    spawner = begin(max_starting=2)
    spawner.begin()

    for life in range(1, 9):
        user = "alice" if life % 2 else "bob"
        spawner.ask("StartJail", life=life, user=user, host_uid=spawner.house.uid(user))
    started = {spawner.core.hear("JailStarted")["life"] for _ in range(8)}

    assert started == set(range(1, 9))


@pytest.mark.wall("jails")
def test_more_jails_than_may_live_are_refused(begin: Begin) -> None:
    spawner = begin(max_alive=1)
    spawner.begin()
    spawner.start_jail(1, "alice")

    spawner.ask("StartJail", life=2, user="bob", host_uid=spawner.house.uid("bob"))
    assert "max_jails" in spawner.core.hear("JailFailed", life=2)["message"]

    spawner.ask("KillJail", life=1)
    spawner.core.hear("JailExited", life=1)
    spawner.start_jail(3, "bob")


def test_a_jail_that_cannot_be_built_is_told_with_what_to_do(begin: Begin) -> None:
    spawner = begin(lib="/nonexistent/lib")
    spawner.begin()

    spawner.ask("StartJail", life=1, user="alice", host_uid=spawner.house.uid("alice"))

    message = spawner.core.hear("JailFailed", life=1)["message"]
    assert "a directory the jail mounts is missing" in message
    assert "/nonexistent/lib" in message


def test_a_jail_killed_while_it_starts_is_answered_once(begin: Begin) -> None:
    spawner = begin(max_starting=1)
    spawner.begin()

    for life in range(1, 7):
        spawner.ask("StartJail", life=life, user="alice", host_uid=spawner.house.uid("alice"))
        spawner.ask("KillJail", life=life)
    ended: dict[int, list[str]] = {life: [] for life in range(1, 7)}
    while not all(told and told[-1] in ("JailFailed", "JailExited") for told in ended.values()):
        heard = spawner.core.lines.next()
        ended[heard["life"]].append(heard["heard"])

    assert all(told in (["JailFailed"], ["JailStarted", "JailExited"]) for told in ended.values())
    spawner.start_jail(7, "alice")


@pytest.mark.wall("words")
def test_a_user_without_directories_gets_no_jail(begin: Begin) -> None:
    spawner = begin()
    spawner.begin()

    spawner.ask("StartJail", life=1, user="nobody", host_uid=spawner.house.uid("nobody"))

    assert spawner.core.hear("JailFailed", life=1)["message"]


@pytest.mark.wall("words")
@pytest.mark.parametrize("uid", [0, 1, USER_UIDS.start - 1_000, USER_UIDS.start - 1, USER_UIDS.stop])
def test_host_uids_outside_the_range_are_refused(begin: Begin, uid: int) -> None:
    if not is_root() and uid == 0:
        uid = 1_000  # an ordinary spawner knows 0 alone
    spawner = begin()
    spawner.begin()

    spawner.ask("StartJail", life=1, user="alice", host_uid=uid)
    assert "host uid" in spawner.core.hear("JailFailed", life=1)["message"]
    spawner.ask("PrepareUser", request=2, user="mallory", host_uid=uid)
    assert "host uid" in spawner.core.hear("UserReady", request=2)["error"]
    assert not user_paths(spawner.house.data_dir, "mallory").user.exists()


@pytest.mark.wall("uids")
def test_another_users_host_uid_opens_no_home(begin: Begin) -> None:
    if not is_root():
        pytest.skip("an ordinary user's jails share a uid")
    spawner = begin()
    spawner.begin()

    spawner.ask("StartJail", life=1, user="alice", host_uid=spawner.house.uid("bob"))

    assert spawner.core.hear("JailFailed", life=1)["message"]


def test_a_user_is_prepared_again_and_again_and_removed(begin: Begin, house: House) -> None:
    spawner = begin()
    spawner.begin()
    uid = house.uid("dora")
    paths = user_paths(house.data_dir, "dora")

    for request in (1, 2):
        spawner.ask("PrepareUser", request=request, user="dora", host_uid=uid)
        assert spawner.core.hear("UserReady", request=request)["error"] == ""
    assert stat.S_IMODE(paths.home.stat().st_mode) == 0o700
    spawner.start_jail(1, "dora")
    spawner.run(1, "/bin/sh", "-c", "mkdir -p a/b && touch a/b/c .d && chmod 0 a/b a && ln -s / l")

    spawner.ask("RemoveUser", request=3, user="dora", host_uid=uid)
    assert "still runs" in spawner.core.hear("UserReady", request=3)["error"]
    spawner.ask("KillJail", life=1)
    spawner.core.hear("JailExited", life=1)
    for request in (4, 5):
        spawner.ask("RemoveUser", request=request, user="dora", host_uid=uid)
        assert spawner.core.hear("UserReady", request=request)["error"] == ""
    assert not paths.user.exists()


@pytest.mark.wall("odd-place")
def test_a_link_where_a_home_belongs_is_refused(begin: Begin, house: House) -> None:
    spawner = begin()
    spawner.begin()
    paths = user_paths(house.data_dir, "eve")
    house.add("eve")
    paths.home.rmdir()
    paths.home.symlink_to(user_paths(house.data_dir, "bob").home)

    spawner.ask("PrepareUser", request=1, user="eve", host_uid=house.uid("eve"))

    assert "not a directory of ours" in spawner.core.hear("UserReady", request=1)["error"]
    paths.home.unlink()


def test_egress_dying_alone_is_started_again_and_core_gets_a_fresh_link(begin: Begin) -> None:
    spawner = begin()
    _, egress = spawner.begin()
    spawner.start_jail(1, "alice")
    spawner.core.do("ping_egress")
    assert spawner.core.hear("pong")["data"] == "ping"

    os.kill(egress["pid"], signal.SIGKILL)

    assert spawner.egress.hear("started")["pid"] != egress["pid"]
    spawner.core.hear("EgressLink")
    spawner.core.do("ping_egress")
    assert spawner.core.hear("pong")["data"] == "ping"
    assert spawner.run(1, "echo", "still here") == [0, "still here\n"]


@pytest.mark.wall("end")
def test_core_dying_ends_its_jails_and_both_are_started_again(begin: Begin) -> None:
    spawner = begin()
    core, egress = spawner.begin()
    jail = spawner.start_jail(1, "alice")["pid"]

    os.kill(core["pid"], signal.SIGKILL)

    fresh, fresh_egress = spawner.begin()
    assert fresh["pid"] != core["pid"]
    assert fresh_egress["pid"] != egress["pid"]
    assert not alive(jail)
    spawner.core.do("ping_egress")
    assert spawner.core.hear("pong")["data"] == "ping"
    spawner.start_jail(1, "alice")


@pytest.mark.wall("words")
@pytest.mark.parametrize("what", ["garbage", "close_control", "send_with_fd"])
def test_a_core_that_breaks_the_protocol_is_replaced(begin: Begin, what: str) -> None:
    spawner = begin()
    core, _ = spawner.begin()

    spawner.core.do(what)

    assert spawner.core.hear("started")["pid"] != core["pid"]
    assert not alive(core["pid"])


@pytest.mark.wall("words")
def test_a_core_that_does_not_read_is_replaced(begin: Begin) -> None:
    spawner = begin(max_alive=1)
    core, _ = spawner.begin()

    spawner.core.do("deaf")
    for life in range(3_000):
        spawner.ask("PrepareUser", request=life, user="alice", host_uid=spawner.house.uid("alice"))
        if not alive(core["pid"]):
            break

    spawner.events.until(event="core_fault_seen")
    assert spawner.core.hear("started")["pid"] != core["pid"]


def test_a_core_that_keeps_failing_is_the_end_with_a_message(begin: Begin) -> None:
    spawner = begin()

    for _ in range(5):
        os.kill(spawner.core.hear("started")["pid"], signal.SIGKILL)

    assert "core failed 5 times" in spawner.events.until(event="service_gave_up")["message"]
    assert spawner.process.wait(30) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_asks_core_first_and_exits_zero(begin: Begin, number: int) -> None:
    spawner = begin()
    spawner.begin()
    jail = spawner.start_jail(1, "alice")["pid"]
    pids = descendants(spawner.process.pid)

    assert spawner.stop(number) == 0

    assert spawner.core.hear("Shutdown")["grace_s"] == 5.0
    assert not alive(jail)
    assert {pid for pid in pids if alive(pid)} == set()


def test_a_core_that_ignores_the_stop_is_killed_after_its_grace(begin: Begin) -> None:
    spawner = begin(grace_s=0.1)
    core, _ = spawner.begin()
    spawner.core.do("stubborn")
    spawner.core.do("ping_egress")  # answered: it is stubborn by now
    spawner.core.hear("pong")

    assert spawner.stop() == 0
    assert not alive(core["pid"])


def test_a_second_signal_ends_the_grace(begin: Begin) -> None:
    spawner = begin(grace_s=600.0)
    spawner.begin()
    spawner.core.do("stubborn")
    spawner.core.do("ping_egress")
    spawner.core.hear("pong")

    spawner.process.send_signal(signal.SIGTERM)
    spawner.core.hear("Shutdown")

    assert spawner.stop() == 0


def test_no_jail_starts_once_the_end_has_begun(begin: Begin) -> None:
    spawner = begin(grace_s=600.0)
    spawner.begin()
    spawner.core.do("stubborn")
    spawner.process.send_signal(signal.SIGTERM)
    spawner.core.hear("Shutdown")

    spawner.ask("StartJail", life=1, user="alice", host_uid=spawner.house.uid("alice"))

    assert "shutting down" in spawner.core.hear("JailFailed", life=1)["message"]
    spawner.stop()


@pytest.mark.wall("end")
def test_the_spawners_sigkill_is_the_end_of_everything_within_two_seconds(begin: Begin) -> None:
    spawner = begin()
    spawner.begin()
    spawner.core.do("stubborn")
    for life, user in ((1, "alice"), (2, "bob")):
        spawner.start_jail(life, user)
    pids = descendants(spawner.process.pid)
    # services, guard; bwrap and worker twice, or the template with a fork in waiting and two workers
    assert len(pids) >= 2 + 1 + 2 * 2

    spawner.process.kill()
    spawner.process.wait()

    assert _wait_until_gone(pids, 2.0) == set()


_SHAKE_OFF = """
import os, socket, threading
listener = socket.socket(fileno=3)
listener.accept()
threading.Thread(target=os.execv, args=('/bin/sleep', ['sleep', '600'])).start()
"""


@pytest.mark.wall("shake-off")
def test_a_worker_that_shook_off_its_parents_death_dies_with_the_spawner(begin: Begin) -> None:
    spawner = begin(command=["/usr/bin/python3", "-I", "-S", "-c", _SHAKE_OFF])
    spawner.begin()
    pid = spawner.start_jail(1, "alice")["pid"]
    deadline = time.monotonic() + 60
    while b"sleep\0" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.01)  # no event tells of another's execve

    spawner.process.kill()
    spawner.process.wait()

    assert _wait_until_gone({pid}, 2.0) == set()


@pytest.mark.wall("end")
def test_a_guard_that_died_is_replaced_and_still_guards(begin: Begin) -> None:
    spawner = begin()
    core, egress = spawner.begin()
    pid = spawner.start_jail(1, "alice")["pid"]
    # forked from the spawner, so of its name, and not executed as all others are
    others = {core["pid"], egress["pid"], pid}
    mine = Path(f"/proc/{spawner.process.pid}/cmdline").read_bytes()
    guard = [p for p in descendants(spawner.process.pid) - others if _cmdline(p) == mine]
    assert len(guard) == 1

    os.kill(guard.pop(), signal.SIGKILL)
    spawner.events.until(event="guard_replaced")
    spawner.process.kill()
    spawner.process.wait()

    assert _wait_until_gone({pid, core["pid"], egress["pid"]}, 2.0) == set()


def test_a_second_server_in_the_same_directory_is_refused(begin: Begin) -> None:
    begin().begin()

    assert begin().process.wait(60) != 0


def _cmdline(pid: int) -> bytes:
    """Empty for one that has ended: a start leaves some that are just about to."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


MOUNTED = {"alice": ["signing-key"], "carol": ["signing-key", "unset"]}


def _ask_jail(spawner: FakedSpawner, life: int, user: str) -> None:
    spawner.ask("StartJail", life=life, user=user, host_uid=spawner.house.uid(user))


def _value_given(spawner: FakedSpawner, life: int, *, late: bool = False) -> list[object]:
    """How a jail of alice's reads what egress gives from now on, and what it reads.

    ``late``: egress answers an older question too, and that answer is closed.
    """
    spawner.egress.do("give", values={"signing-key": "a mounted value"})
    if late:
        spawner.egress.hear("AskMounts")
    spawner.start_jail(life, "alice")
    read: list[object] = spawner.run(life, "cat", "/run/credentials/signing-key")
    return read


def _descriptors(pid: int) -> list[str]:
    return [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]


def test_who_has_mounts_gets_what_egress_has_and_the_spawner_keeps_nothing(
    begin: Begin, house: House
) -> None:
    house.add("carol")
    spawner = begin(mounted=MOUNTED)
    spawner.begin()
    spawner.egress.do("give", values={"signing-key": "a mounted value", "bobs": "not asked for"})

    for life, user in enumerate(("alice", "bob", "carol"), 1):
        spawner.start_jail(life, user)

    assert spawner.run(1, "cat", "/run/credentials/signing-key") == [0, "a mounted value"]
    assert spawner.run(2, "ls", "/run")[0] != 0
    assert spawner.run(3, "ls", "/run/credentials") == [0, "signing-key\n"]
    asked = [spawner.egress.hear("AskMounts") for _ in range(2)]
    assert [(a["user"], a["names"]) for a in asked] == [(u, MOUNTED[u]) for u in ("alice", "carol")]
    assert not [name for name in _descriptors(spawner.process.pid) if "memfd:credential" in name]


def test_a_silent_egress_fails_the_starts_of_those_with_mounts_alone_and_later_ones_work(
    begin: Begin,
) -> None:
    spawner = begin(mounted=MOUNTED, max_starting=1)
    spawner.begin()

    _ask_jail(spawner, 1, "alice")
    spawner.start_jail(2, "bob")  # meanwhile, with one start at a time

    assert "did not answer in 10 s; try again" in spawner.core.hear("JailFailed", life=1)["message"]
    assert _value_given(spawner, 3, late=True) == [0, "a mounted value"]
    assert not [name for name in _descriptors(spawner.process.pid) if "memfd:credential" in name]


def test_an_egress_that_dies_fails_them_at_once_and_its_successor_serves(begin: Begin) -> None:
    spawner = begin(mounted=MOUNTED)
    spawner.begin()

    _ask_jail(spawner, 1, "alice")
    spawner.start_jail(2, "bob")
    spawner.egress.do("exit", status=1)

    assert "has ended" in spawner.core.hear("JailFailed", life=1)["message"]
    spawner.egress.hear("started")
    assert _value_given(spawner, 3) == [0, "a mounted value"]


def test_a_start_that_waits_for_egress_can_be_killed(begin: Begin) -> None:
    spawner = begin(mounted=MOUNTED)
    spawner.begin()

    _ask_jail(spawner, 1, "alice")
    spawner.ask("KillJail", life=1)

    assert "killed before" in spawner.core.hear("JailFailed", life=1)["message"]
    assert _value_given(spawner, 2, late=True) == [0, "a mounted value"]


def test_the_end_of_core_ends_what_waits_for_egress(begin: Begin) -> None:
    spawner = begin(mounted=MOUNTED)
    spawner.begin()

    _ask_jail(spawner, 1, "alice")
    spawner.start_jail(2, "bob")
    spawner.core.do("exit", status=1)

    spawner.core.hear("started")
    spawner.egress.hear("started")
    assert _value_given(spawner, 1) == [0, "a mounted value"]
    assert spawner.stop() == 0


def test_a_life_that_waits_for_egress_is_in_use(begin: Begin) -> None:
    spawner = begin(mounted=MOUNTED)
    spawner.begin()

    _ask_jail(spawner, 1, "alice")
    _ask_jail(spawner, 1, "carol")

    assert "life 1 is in use" in spawner.events.until(event="core_fault_seen")["message"]
