"""Limits of whole jails by control groups: they hold, end nobody else's jail, and leave no group behind."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pytest

from jail.host import cgroups
from jail.host.cgroup_tree import make_groups
from jail.host.cgroups import Cgroups, sweep
from jail.host.messages import HostError
from jail.host.profile import Limits
from tests.fakes.jails import SOURCE, House
from tests.fakes.spawner import FakedSpawner, descendants

Begin = Callable[..., FakedSpawner]

MIB = 1 << 20
LIMITS = {"memory_bytes": 64 * MIB, "processes": 20, "cpu_weight": 50, "cpus": 0.5}
# the tool that takes too much; or the worker, made the one to go, when that does
BALLOON = "held = bytearray(256 << 20); print(len(held))"
AND_TAKE_ALL = "open('/proc/1/oom_score_adj', 'w').write('1000'); " + BALLOON
_LIMIT_S = 30.0


def _usable(place: Path) -> dict[str, int]:
    with closing(Cgroups.begin(place)) as made:
        return made.controllers


@pytest.fixture(scope="module", autouse=True)
def _only_where_there_are_some(tmp_path_factory: pytest.TempPathFactory) -> None:
    missing = {"memory", "pids", "cpu"} - {*_usable(tmp_path_factory.mktemp("probe"))}
    if missing:
        pytest.skip(f"no control groups may be made here for {sorted(missing)}")


@pytest.fixture
def begin(house: House, kind: str) -> Iterator[Begin]:
    """Start spawners that end with the test."""
    spawners: list[FakedSpawner] = []

    def start(**options: Any) -> FakedSpawner:
        spawners.append(FakedSpawner(house, **({"start": kind, "cgroups": "required"} | options)))
        spawners[-1].begin()
        return spawners[-1]

    yield start
    for spawner in spawners:
        spawner.stop(signal.SIGKILL)
        spawner.__exit__()
        _wait_until("its groups are gone", lambda: not _groups_of(house))


def _wait_until(what: str, done: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + _LIMIT_S
    while not (found := done()):
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.01)  # nothing tells of a group's end
    return found


def _groups_of(house: House) -> list[Path]:
    """What a spawner of this house has recorded, as far as it is there."""
    try:  # whoever ends may remove it meanwhile
        record = (house.data_dir / "_run" / "cgroups.json").read_text()
    except FileNotFoundError:
        return []
    return [path for path in map(Path, json.loads(record)) if path.exists()]


def _jail_groups(house: House) -> list[Path]:
    return [path for top in _groups_of(house) for path in (top / "jails").glob("*/")]


def _members(groups: list[Path]) -> set[int]:
    return {int(pid) for path in groups for pid in (path / "cgroup.procs").read_text().split()}


def test_out_of_memory_ends_the_jail_that_took_it_and_no_other(begin: Begin) -> None:
    spawner = begin(limits=LIMITS)
    spawner.start_jail(1, "alice")
    spawner.start_jail(2, "bob")
    # the control: what is below the limit is there to take
    assert spawner.run(1, "/usr/bin/python3", "-c", "print(len(bytearray(16 << 20)))") == [0, f"{16 * MIB}\n"]

    spawner.core.do("edge", life=1, argv=["/usr/bin/python3", "-c", AND_TAKE_ALL])

    ended = spawner.core.hear("JailExited", life=1)
    assert (ended["met"], ended["limit_bytes"]) == ("memory", 64 * MIB)
    assert spawner.run(2, "echo", "still here") == [0, "still here\n"]


def test_a_tool_that_takes_too_much_is_ended_and_the_jail_goes_on(begin: Begin) -> None:
    spawner = begin(limits=LIMITS)
    spawner.start_jail(1, "alice")

    status, said = spawner.run(1, "/usr/bin/python3", "-c", BALLOON)

    assert status in (-9, 137)
    assert str(256 * MIB) not in said
    assert spawner.run(1, "echo", "still here") == [0, "still here\n"]
    spawner.ask("KillJail", life=1)
    assert spawner.core.hear("JailExited", life=1)["met"] == ""  # killed at core's word, not for that


def test_shared_memory_counts_too(begin: Begin) -> None:
    spawner = begin(limits=LIMITS | {"tmp_bytes": 256 * MIB})
    spawner.start_jail(1, "alice")
    fill = "head -c {}M /dev/zero > /dev/shm/full && echo done; rm -f /dev/shm/full"

    assert spawner.run(1, "/bin/sh", "-c", fill.format(16)) == [0, "done\n"]
    spawner.core.do("edge", life=1, argv=["/bin/sh", "-c", "exec head -c 200M /dev/zero > /dev/shm/full"])

    # either of the two may be the one that the kernel ends
    if (answer := spawner.core.hear("edge")["answer"]) is not None:
        assert answer[0] in (-9, 137)
    else:
        assert spawner.core.hear("JailExited", life=1)["met"] == "memory"


def test_every_process_of_a_jail_is_in_its_group_and_none_of_the_servers(begin: Begin, house: House) -> None:
    spawner = begin(limits=LIMITS)
    started = spawner.start_jail(1, "alice")
    spawner.run(1, "/bin/sh", "-c", "sleep 600 >/dev/null 2>&1 & echo begun")

    inside = descendants(started["pid"]) | {started["pid"]}

    assert len(inside) > 1
    for group in _jail_groups(house):
        assert inside <= _members([group])
    assert spawner.process.pid not in _members(_jail_groups(house))
    trusted = [top / "trusted" for top in _groups_of(house) if (top / "trusted").exists()]
    assert spawner.process.pid in _members(trusted)


def test_a_group_has_its_users_limits(begin: Begin, house: House) -> None:
    begin(limits=LIMITS).start_jail(1, "alice")

    groups = _jail_groups(house)
    values = {path.name: path.read_text().strip() for group in groups for path in group.glob("*.*")
              if path.name in ("memory.max", "memory.limit_in_bytes", "pids.max", "cpu.weight", "cpu.shares",
                               "cpu.max", "cpu.cfs_quota_us")}  # fmt: skip

    assert values.get("memory.max", values.get("memory.limit_in_bytes")) == str(64 * MIB)
    assert values["pids.max"] == "24"
    assert values.get("cpu.weight", values.get("cpu.shares")) in ("50", "512")
    assert values.get("cpu.max", values.get("cpu.cfs_quota_us")) in ("50000 100000", "50000")


def test_a_group_goes_with_its_jail_and_all_with_the_server(begin: Begin, house: House) -> None:
    spawner = begin(limits=LIMITS)
    spawner.start_jail(1, "alice")
    assert _jail_groups(house)

    spawner.ask("KillJail", life=1)
    spawner.core.hear("JailExited", life=1)
    _wait_until("the jail's group is gone", lambda: not _jail_groups(house))
    assert _groups_of(house)

    assert spawner.stop() == 0
    assert not (house.data_dir / "_run" / "cgroups.json").exists()


def test_what_a_killed_server_left_is_swept_and_nothing_else(tmp_path: Path) -> None:
    # killed together with whoever would have tidied up after it
    code = (
        "import os, sys, pathlib, subprocess\n"
        "from jail.host.cgroups import Cgroups\n"
        "from jail.host.process import join_cgroups\n"
        "from jail.host.profile import Limits\n"
        "groups = Cgroups.begin(pathlib.Path(sys.argv[1]))\n"
        "made = groups.make(Limits())\n"
        "left = subprocess.Popen(['/bin/sleep', '600'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,"
        " preexec_fn=lambda: join_cgroups(made.procs))\n"
        "print(left.pid, *made.procs, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=SOURCE,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    left, *procs = done.stdout.split()
    tops = {Path(path).parents[2] for path in procs}
    others = [top.with_name("certosa-not-ours") for top in tops]
    for other in others:
        other.mkdir()
    try:
        assert all(top.exists() for top in tops)

        with closing(Cgroups.begin(tmp_path)):
            _wait_until("it has ended", lambda: not os.path.exists(f"/proc/{left}/exe"))
            assert not any(top.exists() for top in tops)
        assert all(other.exists() for other in others)
    finally:
        for other in others:
            other.rmdir()


def test_a_record_that_names_other_groups_is_not_followed(tmp_path: Path) -> None:
    own = tmp_path / "system.slice"
    (own / "jails").mkdir(parents=True)
    (own / "cgroup.procs").write_text("")
    (tmp_path / "cgroups.json").write_text(f'["{own}", 7]')

    sweep(tmp_path / "cgroups.json")

    assert (own / "jails").is_dir()


_SPIN = (
    "import os, sys\n"
    "from jail.host.process import join_cgroups\n"
    "join_cgroups(tuple(sys.argv[1:]))\n"
    "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
    "print(flush=True)\n"
    "while True: pass\n"
)


def _used(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _race(first: tuple[str, ...], second: tuple[str, ...]) -> float:
    """Two that want the same CPU, each in its groups: how much more of it the first got."""
    racers = [
        subprocess.Popen([sys.executable, "-c", _SPIN, *procs], cwd=SOURCE, stdout=subprocess.PIPE)
        for procs in (first, second)
    ]
    try:
        for racer in racers:
            assert racer.stdout is not None
            racer.stdout.readline()
        pids = [racer.pid for racer in racers]
        before = [_used(pid) for pid in pids]

        def run() -> list[int]:
            gained = [_used(pid) - had for pid, had in zip(pids, before, strict=True)]
            return gained if sum(gained) > 150 else []

        ours, theirs = _wait_until("they have used a second and a half", run)
        return float(ours / max(1, theirs))
    finally:
        for racer in racers:
            racer.kill()
            racer.wait()
            assert racer.stdout is not None
            racer.stdout.close()


def test_a_jail_that_spins_leaves_what_is_trusted_its_share(tmp_path: Path) -> None:
    with closing(Cgroups.begin(tmp_path)) as cgroups:
        jails = [cgroups.make(Limits()) for _ in range(2)]
        procs = [jail.procs for jail in jails if jail is not None]

        # the control: two jails get as much as each other
        assert 0.4 < _race(procs[0], procs[1]) < 2.5
        # by weight ten times as much; half of that on a machine that does other things too
        assert _race((), procs[1]) > 5
        for jail in jails:
            assert jail is not None
            cgroups.give_back(jail)


def test_a_record_that_the_disk_has_no_room_for_leaves_the_one_there_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "cgroups.json"
    cgroups._write(record, ["/before"])

    def full(paths: list[str], file: IO[str]) -> None:
        file.write(str(paths)[:5])
        file.flush()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(json, "dump", full)
    with pytest.raises(HostError, match="No space left"):
        cgroups._write(record, ["/before", "/after"])
    assert cgroups._read(record) == [Path("/before")]


def test_a_tree_without_a_controller_that_works_is_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, before = make_groups, Path("/proc/self/cgroup").read_text()
    monkeypatch.setattr(cgroups, "make_groups", lambda *a: replace(plain(*a), controllers=()))
    with closing(Cgroups.begin(tmp_path)) as made:
        assert made.controllers == {}
        assert (tried := cgroups._read(tmp_path / "cgroups.json"))
        assert Path("/proc/self/cgroup").read_text() == before
    assert not any(path.exists() for path in tried)
