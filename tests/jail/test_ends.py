"""Whoever starts a jail may be killed at any moment of the start; nothing of it is left."""

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jail.host.group import group_of, kill_group
from jail.host.oneshot import advance
from jail.host.profile import Limits
from jail.host.running import Phase, readable
from tests.fakes.jails import SOURCE, USER_UIDS, House

_SPAN_US = {"exec": 30_000, "fork": 60_000}
_STEPS = {"exec": 25, "fork": 9}
_RUN = "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); runpy.run_module('tests.fakes.starter_main')"
_GONE_S = 20.0


@pytest.mark.wall("killed-start")
def test_a_starter_killed_at_any_moment_of_a_start_leaves_nothing(house: House, kind: str) -> None:
    before = _children()
    argv = [sys.executable, "-I", "-c", _RUN, str(SOURCE), json.dumps(_task(house, kind))]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        seen = []
        span, steps = _SPAN_US[kind], _STEPS[kind]
        for moment in [str(span * step // steps) for step in range(steps)] + ["running"]:
            print(moment, file=process.stdin, flush=True)
            seen.append(process.stdout.readline())
        process.stdin.close()
        assert process.wait(30) == 0

    assert {"starting\n", "running\n"} == set(seen)
    assert _left_after(before, _GONE_S) == {}


def test_a_group_is_killed_though_its_leader_is_gone_and_an_empty_one_is_nobody() -> None:
    script = "sleep 600 & echo $!; wait"
    leader = subprocess.Popen(
        ["/bin/sh", "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    group = group_of(leader.pid)
    assert leader.stdout is not None
    member = os.pidfd_open(int(leader.stdout.readline()))
    leader.stdout.close()
    leader.kill()
    leader.wait()
    assert not readable(member)

    kill_group(group)

    assert select.select([member], [], [], _GONE_S)[0]
    os.waitid(os.P_PIDFD, member, os.WEXITED)  # an orphan, so ours
    kill_group(group)
    os.close(group)
    os.close(member)


def test_an_executed_start_that_is_killed_before_it_is_let_go_on_comes_to_nothing(house: House) -> None:
    jail = house.starters["exec"].start(house.spec("alice", Limits(), ("/bin/sleep", "600")))
    jail.kill()
    while jail.phase is Phase.STARTING:
        advance(jail, 10.0)
    jail.close()

    # bwrap itself refused: it had been given no arguments
    assert (jail.phase, jail.init_pid, jail.how) == (Phase.ENDED, 0, "exit 1")


def _task(house: House, kind: str) -> dict[str, object]:
    return {
        "start": kind,
        "data_dir": str(house.data_dir),
        "run_dir": str(house.layout.run_dir),
        "staged": str(house.staged.app.parent),
        "etc": str(house.staged.etc),
        "bwrap": str(house.bwrap),
        "machine": house.machine,
        "links": house.system.links,
        "mounts": house.system.mounts,
        "python": house.system.python,
        "user_uids": [USER_UIDS.start, USER_UIDS.stop],
        "uid": house.uid("alice"),
    }


def _children() -> set[int]:
    """Our children's pids: orphans of the jail's are among them, as a test's process is a subreaper."""
    found: set[int] = set()
    for task in os.listdir("/proc/self/task"):
        found |= {int(pid) for pid in Path(f"/proc/self/task/{task}/children").read_text().split()}
    return found


def _left_after(before: set[int], limit_s: float) -> dict[int, str]:
    """Orphans that are alive still, with their names, once all are gone or the time is up."""
    deadline = time.monotonic() + limit_s
    while left := _children() - before:
        for pid in left:
            os.waitpid(pid, os.WNOHANG)
        if time.monotonic() > deadline:
            return {pid: Path(f"/proc/{pid}/comm").read_text() for pid in left}
        time.sleep(0.01)  # orphans of orphans have no event of ours
    return {}
