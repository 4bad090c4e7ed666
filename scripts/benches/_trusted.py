"""The processes of a server that are not jails, and what they cost."""

import re
from pathlib import Path
from typing import NamedTuple

from core.capacity.processes import cost

_INNER = re.compile(r"^NSpid:\s+\d+\s+\d+", re.MULTILINE)


class Spent(NamedTuple):
    """Of all together: CPU seconds since their starts, proportional memory, threads, how many there are."""

    cpu_s: float
    memory_bytes: int
    threads: int
    processes: int


def trusted(pid: int) -> list[int]:
    """The spawner and all below it that live in its own pid namespace; the jails' processes do not."""
    found = [pid]
    for child in _said(pid, f"task/{pid}/children").split():
        if not _INNER.search(_said(int(child), "status")):
            found += trusted(int(child))
    return found


def spent(pids: list[int]) -> Spent:
    """What these cost now. OSError where one of them has ended."""
    costs = [cost(pid) for pid in pids]
    return Spent(
        sum(one.cpu_s for one in costs),
        sum(one.memory_bytes for one in costs),
        sum(one.threads for one in costs),
        len(costs),
    )


def command(pid: int) -> str:
    """What a process was started as, for a line that says which one it is."""
    return _said(pid, "cmdline").replace("\0", " ")


def _said(pid: int, file: str) -> str:
    """Of a process in /proc; "" for one that has just ended."""
    try:
        return Path(f"/proc/{pid}/{file}").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
