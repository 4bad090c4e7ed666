"""What measuring jails' memory costs, as the pool has it done: so many every few seconds, at most.

``share`` "spawner": the CPU time of measuring a batch of real processes as large as workers, in a child as
the spawner does it, the fork with it, over the time between two batches; "core": of the pool choosing whom
to measure among 1,000 jails and keeping what was found. Both in seconds a second, so 0.01 is 1 % of a
core. The floor is a look at /proc/PID/stat of the same processes.
"""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from core.pool.actor import MEASURE, MEASURE_EVERY_S
from core.pool.jails import Budget
from core.pool.meminfo import machine
from core.pool.policy import PoolPolicy
from jail.host.measure import measure as measure_tree
from jail.host.process import fork_quietly
from scripts.benches.result import Result, median_and_p99

_JAILS = 1_000
_ROUNDS = 200
_WORKER = "import jail.peer.worker, time; print(flush=True); time.sleep(600)"


def measure() -> Iterator[Result]:
    """The spawner's share first, then core's."""
    root = str(Path(__file__).resolve().parents[2])
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", f"import sys; sys.path.insert(0, {root!r}); {_WORKER}"],
            stdout=subprocess.PIPE,
        )
        for _ in range(MEASURE)
    ]
    try:
        for worker in workers:
            assert worker.stdout is not None
            worker.stdout.readline()
        pids = [worker.pid for worker in workers]
        floor = _share(lambda: [os.stat(f"/proc/{pid}/stat") for pid in pids])[0]
        median, p99 = _share(lambda: _in_child(pids))
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    varied: dict[str, str | int | float] = {"share": "spawner", "batch": MEASURE, "every_s": MEASURE_EVERY_S}
    yield Result("sampling", varied, median, p99, "s", floor)
    median, p99 = _core()
    yield Result("sampling", {"share": "core", "jails": _JAILS}, median, p99, "s", floor)


def _in_child(pids: list[int]) -> None:
    pid = fork_quietly()
    if pid == 0:
        for one in pids:
            measure_tree([one])
        os._exit(0)
    os.waitpid(pid, 0)


def _core() -> tuple[float, float]:
    policy = PoolPolicy(Budget(jails=_JAILS, starting=_JAILS, queue=_JAILS))
    for life in range(1, _JAILS + 1):
        policy.want(life, f"user{life}", 0.0)
        policy.used(life, life % 2 == 0, 0.0)
    now_s = 0.0

    def look() -> None:
        nonlocal now_s
        now_s += 60.0
        for life in policy.stale(MEASURE, now_s):
            policy.measured(life, 8 << 20, 1, 0.5, now_s, 4 << 20)
        policy.now(machine())

    return _share(look)


def _share(work: object) -> tuple[float, float]:
    assert callable(work)
    samples = []
    for _ in range(_ROUNDS):
        began_s = _spent_s()
        work()
        samples.append((_spent_s() - began_s) / MEASURE_EVERY_S)
    return median_and_p99(samples)


def _spent_s() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
