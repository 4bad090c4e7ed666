"""What the machine and each process of a load test needs, looked at every few seconds."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from core.capacity.processes import cost, cpu_below_s
from core.errors import CoreError
from core.pool.meminfo import available_bytes

Look = Callable[[], dict[str, Any]]


def take(began_s: float, pids: dict[str, int], pool: Look) -> dict[str, Any]:
    """One sample: ``at_s``, ``processes`` by name, of all jails ``jails``, ``jail_bytes``, ``jail_cpu_s``,
    of the machine ``available_bytes``."""
    jails = pool()["jails"]
    return {
        "at_s": round(time.monotonic() - began_s, 2),
        "processes": {name: cost(pid)._asdict() for name, pid in pids.items()},
        "jails": sum(jail["state"] != "queued" for jail in jails),
        "jail_bytes": sum(jail["memory_bytes"] or 0 for jail in jails),
        "jail_cpu_s": cpu_below_s(pids["spawner"], frozenset(pids.values())),
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
        except (OSError, CoreError) as error:
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
