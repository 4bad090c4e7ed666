"""The jail's process table, and the end of everything that a tool started.

A process group is left by whoever calls setsid, so a tool's tree is taken to be its session, all
descendants of these, and, where asked, the orphans that fell to us.
"""

import contextlib
import os
import signal
import time
from typing import NamedTuple

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_ROUNDS = 20  # a tree that forks while it is killed needs more than one look


class Process(NamedTuple):
    """One row of the table; ``state`` as in proc(5)."""

    state: str
    parent: int
    session: int
    started_s: float  # since boot, in steps of a clock tick


def table() -> dict[int, Process]:
    """Every visible process by pid; those that end while we look are left out."""
    found: dict[int, Process] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                found[int(name)] = parse_stat(_read(f"/proc/{name}/stat"))
    return found


def parse_stat(stat: bytes) -> Process:
    """A row from /proc/PID/stat; the name in parentheses may hold anything, ``)`` too."""
    fields = stat[stat.rindex(b")") + 2 :].split()
    started_s = int(fields[19]) / _TICKS_PER_S
    return Process(fields[0].decode(), int(fields[1]), int(fields[3]), started_s)


class Orphans(NamedTuple):
    """Which orphans belong to a tree: children of ``parent`` not older than ``since_s``."""

    parent: int
    since_s: float


def now_s() -> float:
    """The time that ``started_s`` is counted in, rounded down to its steps."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * _TICKS_PER_S) / _TICKS_PER_S


def members(processes: dict[int, Process], root: int, orphans: Orphans | None) -> set[int]:
    """Pids of the tree of ``root``: its session, the orphans given, descendants of all these."""

    def begins(pid: int, process: Process) -> bool:
        if root in (pid, process.session):
            return True
        return (
            orphans is not None and process.parent == orphans.parent and process.started_s >= orphans.since_s
        )

    found = {pid for pid, process in processes.items() if begins(pid, process)}
    while True:
        more = {pid for pid, process in processes.items() if process.parent in found} - found
        if not more:
            return found
        found |= more


def kill_tree(root: int, orphans_since_s: float | None) -> None:
    """SIGKILL to the tree of ``root`` until nothing of it runs. Zombies are the reaper's.

    Args:
        root: pid of a session's leader.
        orphans_since_s: also orphans of ours that are no older (see :func:`now_s`); None: none.
    """
    me = os.getpid()
    orphans = Orphans(me, orphans_since_s) if orphans_since_s is not None else None
    for _ in range(_ROUNDS):
        processes = table()
        running = [
            pid for pid in members(processes, root, orphans) if pid != me and processes[pid].state not in "ZX"
        ]
        if not running:
            return
        # all stand still first: none sees another's end, to start it again or to tell of it
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in running:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 4096)
    finally:
        os.close(fd)
