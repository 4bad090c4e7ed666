"""A thousand warm users who say nothing, and one of them who does, beside a server with ten.

Two servers are there at once. ``what`` cpu: the share of one core that the trusted processes took together
while all were idle, in percent; memory: their proportional memory together; turn: the first token of somebody
at random, of either server in turn. The floor is the server with ten. As many are warm as memory allows.
"""

import os
import random
import time
from collections.abc import Iterator

from core.cli.demo_server import DemoServer, demo_server
from core.pool.meminfo import available_bytes
from scripts.benches._people import Client, add_users, warm_up
from scripts.benches._trusted import Spent, spent, trusted
from scripts.benches._yard import BenchError
from scripts.benches.result import Result, median_and_p99

_MANY, _FEW = 1_000, 10
_JAIL_BYTES = 9 << 20
_SPARE_BYTES = 1 << 30
_CONFIG = f"""
[pool]
idle_s = 7200
max_jails = {_MANY + 1}
[access]
free_failures = 1000
"""
_TURNS = 200
_PAUSE_S = 0.02
_SETTLE_S = 15.0  # what was used is measured once, and the last turns' groups are written
_IDLE_S = 30.0


def measure() -> Iterator[Result]:
    """Three lines."""
    room = (available_bytes() - _SPARE_BYTES) // _JAIL_BYTES
    many = min(_MANY, room)
    if many < 10 * _FEW:
        raise BenchError(f"there is memory for {max(room, 0)} jails, and this wants {10 * _FEW} at least")
    with demo_server(_CONFIG) as full, demo_server(_CONFIG) as small:
        crowd, handful = _warm(full, many), _warm(small, _FEW)
        time.sleep(_SETTLE_S)
        began_s = time.monotonic()
        before = [spent(trusted(server.pid)) for server in (full, small)]
        time.sleep(_IDLE_S)
        took_s = time.monotonic() - began_s
        after = [spent(trusted(server.pid)) for server in (full, small)]
        shares = [100 * (b.cpu_s - a.cpu_s) / took_s for a, b in zip(before, after, strict=True)]
        varied: dict[str, str | int | float] = {"warm": many, "floor_warm": _FEW}
        load = round(os.getloadavg()[0], 1)
        yield Result(
            "idle",
            {**varied, "what": "cpu", "seconds": _IDLE_S, "load": load},
            shares[0],
            shares[0],
            "%",
            max(shares[1], 0.01),
        )
        yield _memory(varied, *after)
        yield _turns(varied, (full, crowd), (small, handful))


def _memory(varied: dict[str, str | int | float], full: Spent, small: Spent) -> Result:
    more: dict[str, str | int | float] = {
        **varied, "what": "memory", "threads": full.threads, "processes": full.processes
    }  # fmt: skip
    return Result("idle", more, full.memory_bytes, full.memory_bytes, "bytes", small.memory_bytes)


def _turns(
    varied: dict[str, str | int | float],
    full: tuple[DemoServer, list[str]],
    small: tuple[DemoServer, list[str]],
) -> Result:
    took: tuple[list[float], list[float]] = ([], [])
    for _ in range(_TURNS):
        for (server, tokens), found in zip((full, small), took, strict=True):
            time.sleep(_PAUSE_S)
            found.append(_turn_ms(server, random.choice(tokens)))
    median, p99 = median_and_p99(took[0])
    floor, floor_p99 = median_and_p99(took[1])
    more: dict[str, str | int | float] = {
        **varied, "what": "turn", "n": _TURNS, "floor_p99": round(floor_p99, 2),
        "p99_ratio": round(p99 / floor_p99, 2), "load": round(os.getloadavg()[0], 1),
    }  # fmt: skip
    return Result("idle", more, median, p99, "ms", floor)


def _turn_ms(server: DemoServer, token: str) -> float:
    """One turn on a connection of its own, that is made before."""
    client = Client(server.hub_port, "assistant", token)
    try:
        return client.first_token_ms()
    finally:
        client.close()


def _warm(server: DemoServer, count: int) -> list[str]:
    tokens = add_users(server, count)
    warm_up(server.hub_port, "assistant", tokens)
    alive = len(server.status()["jails"])
    if alive != count:
        raise BenchError(f"{alive} jails are warm instead of {count}")
    return tokens
