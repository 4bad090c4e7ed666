"""What processes cost, as /proc has it."""

import os
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")
_OWN = ("Pss_Anon", "Pss_Shmem", "SwapPss")


class Cost(NamedTuple):
    """``cpu_s`` since its start; ``memory_bytes`` is proportional, ``own_bytes`` the part of it that no file
    is behind, which others that run the same programs don't move. Both are 0 where we may not read them."""

    cpu_s: float
    memory_bytes: int
    own_bytes: int
    descriptors: int
    threads: int


def cost(pid: int) -> Cost:
    """Of one process. OSError when it is gone or somebody else's."""
    directory = _PROC / str(pid)
    fields = _fields(directory)
    sizes = _sizes(directory)
    own = sum(sizes.get(name, 0) for name in _OWN)
    return Cost(_cpu_s(fields), sizes.get("Pss", 0), own, len(os.listdir(directory / "fd")), int(fields[17]))


def cpu_below_s(pid: int, without: frozenset[int]) -> float:
    """CPU seconds of all that descends from a process, but for some and what descends from those."""
    children: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for directory in _PROC.glob("[0-9]*"):
        try:
            fields = _fields(directory)
        except OSError:  # it has just ended
            continue
        children[int(fields[1])].append((int(directory.name), _cpu_s(fields)))
    total, left = 0.0, [pid]
    while left:
        for child, used_s in children[left.pop()]:
            if child not in without:
                total += used_s
                left.append(child)
    return total


def _fields(directory: Path) -> list[str]:
    """Of /proc/PID/stat, from the state on: the name before it may hold anything."""
    return (directory / "stat").read_text().rpartition(") ")[2].split()


def _cpu_s(fields: list[str]) -> float:
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _sizes(directory: Path) -> dict[str, int]:
    """What proc_pid_smaps(5) has of a process, in bytes by name; nothing where we may not read it."""
    try:
        lines = (directory / "smaps_rollup").read_text().splitlines()
    except PermissionError:
        return {}
    fields = (line.split() for line in lines if line.endswith(" kB"))
    return {name.rstrip(":"): int(size) << 10 for name, size, _ in fields}
