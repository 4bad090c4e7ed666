"""What a jail's processes hold in memory and have used of the CPU, as the host sees it."""

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
_MAX_PROCESSES = 1_024
# Adding up a process's mappings takes as long as it has mappings: a jail may make that long on purpose.
_CAREFUL_S = 0.02
_GONE = (FileNotFoundError, ProcessLookupError)


class Use(NamedTuple):
    """Memory in bytes, processes, and CPU time in seconds; all 0 once the jail has ended."""

    memory_bytes: int
    processes: int
    cpu_s: float


def measure(pids: Iterable[int], proc: Path = _PROC) -> Use:
    """These processes and all that descend from them.

    Memory is proportional, that is shared pages in parts (proc_pid_smaps(5)). Where the kernel does
    not show that, and after 20 ms of it, it is resident memory, which counts shared pages whole.
    """
    deadline_s = time.monotonic() + _CAREFUL_S
    waiting, seen = list(pids), set[int]()
    memory, ticks, found = 0, 0, 0
    while waiting and len(seen) < _MAX_PROCESSES:
        pid = waiting.pop()
        if pid in seen:
            continue
        seen.add(pid)
        here = proc / str(pid)
        try:
            its_ticks = _ticks((here / "stat").read_bytes())
            threads = [task.name for task in (here / "task").iterdir()]
        except _GONE:
            continue  # it has ended meanwhile
        its_memory = _memory(proc, threads, careful=time.monotonic() < deadline_s)
        waiting += _children(here, threads)
        ticks += its_ticks
        memory += its_memory
        found += its_memory > 0  # a zombie has none
    return Use(memory, found, ticks / _TICKS)


def _ticks(stat: bytes) -> int:
    """utime, stime, cutime, cstime; the name before them may hold anything (proc_pid_stat(5))."""
    fields = stat[stat.rindex(b")") + 2 :].split()
    return sum(map(int, fields[11:15]))


def _memory(proc: Path, threads: list[str], careful: bool) -> int:
    """What a process holds, 0 for a zombie.

    Each thread has a directory in /proc as a process has. A process's own shows nothing any more once its
    first thread has ended, which a process can do to be overlooked: then another thread's does.
    """
    for thread in threads:
        try:
            if found := _memory_at(proc / thread, careful):
                return found
        except _GONE:
            continue
    return 0


def _memory_at(here: Path, careful: bool) -> int:
    if careful:
        try:
            for line in (here / "smaps_rollup").read_bytes().splitlines():
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1_024
        except PermissionError:
            pass  # it is another's: what everybody may see has to do
    return int((here / "statm").read_bytes().split()[1]) * _PAGE_BYTES


def _children(here: Path, threads: list[str]) -> list[int]:
    found: list[int] = []
    for thread in threads:
        try:
            found += map(int, (here / "task" / thread / "children").read_bytes().split())
        except _GONE:
            continue
    return found
