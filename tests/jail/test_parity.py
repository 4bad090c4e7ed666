"""A forked worker's jail and an executed one are one wall: compared line by line, from outside and inside."""

import json
import os
import re
import select
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jail.host.doctor import DoctorConfig, run_doctor
from jail.host.messages import Start
from jail.host.profile import Limits
from jail.host.seccomp import filter_program
from tests.fakes.jail_portrait import INSIDE, Portrait, filters, outside, read_all
from tests.fakes.jails import USER_UIDS, House, ShellJail, is_root
from tests.fakes.mount_files import memory_file, with_mounts

KINDS: tuple[Start, ...] = ("fork", "exec")
LIMITS = Limits(processes=77, open_files=123, file_bytes=1 << 22, address_bytes=1 << 30)

ALLOWED: dict[str, str] = {
    "parent": "bwrap stays beside an executed worker and has left a forked one, whose parent is the spawner",
    "mapped files": "the template loaded the library by its path on the host, which mountinfo shows too",
    "auxiliary vector": "written at the template's execve, when it still had the spawner's ids",
    "mount of the interpreter": "the host's; jail/host/starters.py, check_interpreter(), says why",
}
"""What may differ, and why."""


@pytest.fixture
def workers(house: House) -> Iterator[dict[Start, ShellJail]]:
    """A real worker of each kind, waiting for core's HELLO."""
    jails = {kind: ShellJail(house, "alice", LIMITS, command=(), start=kind) for kind in KINDS}
    for jail in jails.values():
        _wait_for_hello(jail)
    yield jails
    for jail in jails.values():
        jail.end()


@pytest.mark.wall("parity")
def test_both_look_the_same_from_outside(workers: dict[Start, ShellJail]) -> None:
    forked, executed = (outside(workers[kind].jail.init_pid) for kind in KINDS)

    assert _differences(forked, executed) == {}
    assert len(forked) > 50  # something was compared
    assert {name for name in ALLOWED if forked[name] != executed[name]} >= {"parent", "mapped files"}


@pytest.mark.wall("parity")
@pytest.mark.skipif(not is_root(), reason="filters are read by CAP_SYS_ADMIN alone")
def test_both_have_the_same_filter_and_no_other(house: House, workers: dict[Start, ShellJail]) -> None:
    expected = [filter_program(house.machine)]

    assert [filters(workers[kind].jail.init_pid) for kind in KINDS] == [expected, expected]


@pytest.mark.wall("parity")
def test_both_look_the_same_from_inside(house: House) -> None:
    seen = {}
    for kind in KINDS:
        command = (house.system.python, "-I", "-S", "-c", INSIDE)
        jail = ShellJail(house, "alice", LIMITS, command, start=kind)
        jail.jail.edge.setblocking(True)
        seen[kind] = read_all(jail.jail.edge.fileno())
        jail.end()

    assert _differences(seen["fork"], seen["exec"]) == {}
    assert len(seen["fork"]) > 30


def test_both_look_the_same_with_a_credential_in_them(house: House) -> None:
    seen: dict[Start, Portrait] = {}
    for kind in KINDS:
        fds = memory_file("a mounted value"), memory_file("a mounted value")
        inside, worker = (
            ShellJail(house, "alice", LIMITS, command, with_mounts(("signing-key",), (fd,)), start=kind)
            for fd, command in zip(fds, ((house.system.python, "-I", "-S", "-c", INSIDE), ()), strict=True)
        )
        for fd in fds:
            os.close(fd)
        inside.jail.edge.setblocking(True)
        portraits = {"inside": read_all(inside.jail.edge.fileno())}
        _wait_for_hello(worker)
        portraits["outside"] = outside(worker.jail.init_pid)
        for jail in (inside, worker):
            jail.end()
        # bwrap binds a file that it has made and deleted, with another name each time
        text = re.sub(r"/bindfile\w{6}", "/bindfile", json.dumps(portraits))
        assert text.count("/run/credentials/signing-key") >= 2
        seen[kind] = json.loads(text)

    assert _differences(seen["fork"], seen["exec"]) == {}


@pytest.mark.wall("parity")
def test_every_attack_ends_the_same_way(house: House) -> None:
    reports = {}
    for kind in KINDS:
        config = DoctorConfig(
            house.data_dir, house.bwrap, house.machine, house.system, house.staged.lib,
            house.staged.etc, house.owners, USER_UIDS, app=house.staged.app, start=kind,
        )  # fmt: skip
        report = run_doctor(config)
        assert (report.error, report.start) == ("", kind)
        reports[kind] = [(f.expected, f.got, f.ok) for f in report.findings if "time" not in f.attempt]

    forked, executed = reports["fork"], reports["exec"]
    assert len(forked) == len(executed) > 100
    assert [f for f, e in zip(forked, executed, strict=True) if f[2] != e[2]] == []


def _differences(forked: Portrait, executed: Portrait) -> dict[str, object]:
    found: dict[str, object] = {}
    for name in forked.keys() | executed.keys():
        if name in ALLOWED:
            continue
        one, other = forked.get(name), executed.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            inner = _differences(one, other)
            if inner:
                found[name] = inner
        elif one != other:
            found[name] = {"fork": one, "exec": other}
    return found


def _wait_for_hello(worker: ShellJail) -> None:
    """Until it waits for core's HELLO, with threads that have given themselves their names."""
    poll = select.poll()
    poll.register(worker.jail.edge.fileno(), select.POLLIN)
    assert poll.poll(60_000)
    tasks = Path(f"/proc/{worker.jail.init_pid}/task")
    deadline = time.monotonic() + 60
    while sum((task / "comm").read_text().startswith("ZMQbg/") for task in tasks.iterdir()) < 2:
        assert time.monotonic() < deadline, "libzmq's threads have no names"
        time.sleep(0.01)
