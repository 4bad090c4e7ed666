"""What a jail's processes hold in memory and have used of the CPU, as the host sees it; and we ourselves."""

import os
import resource
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

_PROC = Path("/proc")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
_MAX_PROCESSES = 1_024
# Adding up a process's mappings takes as long as it has mappings: a jail may make that long on purpose.
_CAREFUL_S = 0.02
_SHOWN = (b"Pss", b"Private_Clean", b"Private_Dirty")
_GONE = (FileNotFoundError, ProcessLookupError)


class Use(NamedTuple):
    """Memory in bytes, processes, and CPU time in seconds; all 0 once the jail has ended.

    ``private_bytes`` of the memory no other process shares; 0 where the kernel does not show it.
    """

    memory_bytes: int
    processes: int
    cpu_s: float
    private_bytes: int = 0


class ProcessUse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a process of ours uses: resident memory, and ``started_s`` as Unix time."""

    cpu_s: float
    memory_bytes: int
    descriptors: int
    descriptors_limit: int
    threads: int
    started_s: float


def own_use() -> ProcessUse:
    """What this process uses. Raises OSError."""
    stat = (_PROC / "self" / "stat").read_bytes()
    fields = stat[stat.rindex(b")") + 2 :].split()
    up_s = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / _TICKS
    return ProcessUse(
        time.process_time(),
        int((_PROC / "self" / "statm").read_bytes().split()[1]) * _PAGE_BYTES,
        len(os.listdir("/proc/self/fd")) - 1,  # that look's own
        resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        int(fields[17]),
        round(time.time() - up_s, 2),
    )


def measure(pids: Iterable[int], proc: Path = _PROC) -> Use:
    """These processes and all that descend from them.

    Memory is proportional, that is shared pages in parts (proc_pid_smaps(5)). Where the kernel does
    not show that, and after 20 ms of it, it is resident memory, which counts shared pages whole.
    """
    deadline_s = time.monotonic() + _CAREFUL_S
    waiting, seen = list(pids), set[int]()
    memory, private, ticks, found = 0, 0, 0, 0
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
        its_memory, its_private = _memory(proc, threads, careful=time.monotonic() < deadline_s)
        waiting += _children(here, threads)
        ticks += its_ticks
        memory += its_memory
        private += its_private
        found += its_memory > 0  # a zombie has none
    return Use(memory, found, ticks / _TICKS, private)


def _ticks(stat: bytes) -> int:
    """utime, stime, cutime, cstime; the name before them may hold anything (proc_pid_stat(5))."""
    fields = stat[stat.rindex(b")") + 2 :].split()
    return sum(map(int, fields[11:15]))


def _memory(proc: Path, threads: list[str], careful: bool) -> tuple[int, int]:
    """What a process holds, and of it what is private; 0 for a zombie.

    Each thread has a directory in /proc as a process has. A process's own shows nothing any more once its
    first thread has ended, which a process can do to be overlooked: then another thread's does.
    """
    for thread in threads:
        try:
            found = _memory_at(proc / thread, careful)
        except _GONE:
            continue
        if found[0]:
            return found
    return 0, 0


def _memory_at(here: Path, careful: bool) -> tuple[int, int]:
    if careful:
        try:
            found: dict[bytes, int] = {}
            for line in (here / "smaps_rollup").read_bytes().splitlines():
                name, _, value = line.partition(b":")
                if name in _SHOWN:
                    found[name] = int(value.split()[0]) * 1_024
            if b"Pss" in found:
                return found[b"Pss"], found.get(b"Private_Clean", 0) + found.get(b"Private_Dirty", 0)
        except PermissionError:
            pass  # it is another's: what everybody may see has to do
    return int((here / "statm").read_bytes().split()[1]) * _PAGE_BYTES, 0


def _children(here: Path, threads: list[str]) -> list[int]:
    found: list[int] = []
    for thread in threads:
        try:
            found += map(int, (here / "task" / thread / "children").read_bytes().split())
        except _GONE:
            continue
    return found
