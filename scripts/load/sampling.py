"""What the machine and each process of a load test needs, looked at every few seconds."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from core.cli.failure import CommandFailed

_TICKS = os.sysconf("SC_CLK_TCK")

Look = Callable[[], dict[str, Any]]


def process(pid: int) -> dict[str, Any]:
    """``cpu_s`` since its start, ``memory_bytes`` (proportional where we may read it, else resident),
    ``descriptors``, ``threads``. OSError when it is gone."""
    directory = Path("/proc") / str(pid)
    fields = (directory / "stat").read_text().rpartition(") ")[2].split()
    return {
        "cpu_s": (int(fields[11]) + int(fields[12])) / _TICKS,
        "memory_bytes": _memory_bytes(directory),
        "descriptors": len(os.listdir(directory / "fd")),
        "threads": int(fields[17]),
    }


def available_bytes() -> int:
    """The machine's MemAvailable."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    raise OSError("no MemAvailable in /proc/meminfo")


def _memory_bytes(directory: Path) -> int:
    for line in (directory / "smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) << 10
    return 0


def take(began_s: float, pids: dict[str, int], pool: Look) -> dict[str, Any]:
    """One sample: ``at_s``, ``processes`` by name, of all jails ``jails``, ``jail_bytes``, ``jail_cpu_s``,
    of the machine ``available_bytes``."""
    jails = pool()["jails"]
    return {
        "at_s": round(time.monotonic() - began_s, 2),
        "processes": {name: process(pid) for name, pid in pids.items()},
        "jails": sum(jail["state"] != "queued" for jail in jails),
        "jail_bytes": sum(jail["memory_bytes"] or 0 for jail in jails),
        "jail_cpu_s": sum(jail["cpu_s"] or 0.0 for jail in jails),
        "available_bytes": available_bytes(),
    }


@contextmanager
def sampling(
    began_s: float, pids: dict[str, int], pool: Look, every_s: float
) -> Iterator[list[dict[str, Any]]]:
    """Samples, taken on a thread of their own until the block ends; a process that ends is an error."""
    samples = [take(began_s, pids, pool)]
    stop = threading.Event()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            while not stop.wait(every_s):
                samples.append(take(began_s, pids, pool))
        except (OSError, CommandFailed) as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="sampler")
    thread.start()
    try:
        yield samples
    finally:
        stop.set()
        thread.join()
    if failed:
        raise failed[0]
