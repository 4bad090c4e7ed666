"""One server's control groups in one tree: how they are made, set, searched and removed."""

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from jail.host.hierarchies import Hierarchy
from jail.host.profile import Limits

_TRUSTED_WEIGHT: Final = 1_000  # to all jails' 100: ten to one where both want all of the CPU
_PERIOD_US: Final = 100_000
_SHARES: Final = 1_024  # of version 1, for a weight of 100
_SPARE_PROCESSES: Final = 4  # a builder, bwrap and its child, for a moment
_END_S: Final = 3.0


def make_groups(one: Hierarchy, name: str) -> Hierarchy:
    """Make a server's groups in one tree; returns the controllers that work there. Raises OSError."""
    top = one.base / name
    top.mkdir(mode=0o755)
    if one.version == 2 or "cpu" in one.controllers:
        (top / "trusted").mkdir(mode=0o755)
        set_file(top / "trusted" / "cgroup.procs", str(os.getpid()))
    controllers = one.controllers
    if one.version == 2:
        controllers = tuple(c for c in controllers if _enable(c, (one.base, top)))
    jails = top / "jails"
    jails.mkdir(mode=0o755)
    if one.version == 2:
        controllers = tuple(c for c in controllers if _enable(c, (jails,)))
    if "cpu" in controllers:
        # a group of version 1 stands beside single processes, and would get as little as one of them
        whole = ((top, _TRUSTED_WEIGHT),) if one.version == 1 else ()
        file = "cpu.weight" if one.version == 2 else "cpu.shares"
        for group, weight in (*whole, (top / "trusted", _TRUSTED_WEIGHT), (jails, 100)):
            set_file(group / file, _weight(one.version, weight))
    trial = jails / "trial"
    trial.mkdir(mode=0o755)
    try:
        usable = replace(one, controllers=controllers)
        for file, value in settings(usable, Limits()):
            set_file(trial / file, value)
    finally:
        remove_group(trial)
    return usable


def undo_groups(one: Hierarchy, name: str) -> None:
    """End what is left in the jails' groups, leave the server's, and remove them (within 3 s each)."""
    top = one.base / name
    if not top.exists():
        return
    end_all(top / "jails")
    for group in groups_below(top / "jails"):
        remove_group(group)
    if one.version == 2:
        # as long as controllers are on, no process may stand in the group that they are on for
        for group in (top, *((one.base,) if one.base == one.own else ())):
            for controller in one.controllers:
                with suppress(OSError):
                    set_file(group / "cgroup.subtree_control", f"-{controller}")
    with suppress(OSError):
        set_file(one.own / "cgroup.procs", str(os.getpid()))
    deadline_s = time.monotonic() + _END_S
    while [group for group in groups_below(top) if not remove_group(group)] and time.monotonic() < deadline_s:
        time.sleep(0.005)  # what was killed is not yet reaped


def settings(one: Hierarchy, limits: Limits) -> Iterable[tuple[str, str]]:
    """What to write where; swap and quota only where the kernel has them is up to :func:`set_file`."""
    memory, swap = limits.memory_bytes, limits.swap_bytes
    if "memory" in one.controllers and memory and one.version == 2:
        yield "memory.max", str(memory)
        yield "?memory.swap.max", str(swap)
    elif "memory" in one.controllers and memory:
        yield "memory.limit_in_bytes", str(memory)
        yield "?memory.memsw.limit_in_bytes", str(memory + swap)
    if "pids" in one.controllers:
        yield "pids.max", str(limits.processes + _SPARE_PROCESSES)
    if "cpu" in one.controllers:
        quota = round(limits.cpus * _PERIOD_US)
        if one.version == 2:
            yield "cpu.weight", _weight(2, limits.cpu_weight)
            if quota:
                yield "cpu.max", f"{quota} {_PERIOD_US}"
        else:
            yield "cpu.shares", _weight(1, limits.cpu_weight)
            if quota:
                yield "cpu.cfs_quota_us", str(quota)


def set_file(path: Path, value: str) -> None:
    """Write a group's file; a name with "?" is left out where the kernel has no such file. Raises OSError."""
    if path.name.startswith("?"):
        path = path.with_name(path.name[1:])
        if not path.exists():
            return
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, value.encode())
    finally:
        os.close(fd)


def _weight(version: int, weight: int) -> str:
    return str(weight) if version == 2 else str(max(2, weight * _SHARES // 100))


def _enable(controller: str, groups: tuple[Path, ...]) -> bool:
    try:
        for group in groups:
            set_file(group / "cgroup.subtree_control", f"+{controller}")
    except OSError:
        return False
    return True


def groups_below(path: Path) -> list[Path]:
    """A group and all below it, the innermost first."""
    return [Path(directory) for directory, _, _ in os.walk(path, topdown=False)]


def remove_group(path: Path) -> bool:
    """Remove one that nothing is in; whether it is gone."""
    try:
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def end_all(path: Path) -> None:
    """SIGKILL for what is in a group or below it, until nothing is (within 3 s)."""
    deadline_s = time.monotonic() + _END_S
    while (pids := _processes(path)) and time.monotonic() < deadline_s:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)  # no event tells of another's child


def _processes(path: Path) -> list[int]:
    found: list[int] = []
    for group in groups_below(path):
        with suppress(OSError):
            found += map(int, (group / "cgroup.procs").read_text(encoding="ascii").split())
    return [pid for pid in found if pid > 0]
