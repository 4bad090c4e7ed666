"""What a user and a stream cost on this machine: measured on a server of one's own, in about a minute."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import median

from core.capacity.client import Turn, take_turn
from core.capacity.model import TOKENS_PER_S, Costs, Machine
from core.capacity.pace import Pace
from core.capacity.people import CONFIG, add_person
from core.capacity.processes import cost, cpu_below_s
from core.capacity.program import running_module
from core.cli.demo_server import DemoServer, demo_server
from core.cli.failure import CommandFailed
from core.pool.meminfo import available_bytes

_WARM = 16
_BATCH = 4
_SETTLE_S = 3.0
_STREAM_S = 20.0
_TEXT = "How much does this machine carry?"
_LOOKS = 5

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Measured:
    """Costs, and what they were taken from.

    Args:
        streams: at once while it was measured.
        beside_cpus: what the client and the model server used, which are no part of Certosa.
        delay_ms: a token's delay meanwhile, the median.
    """

    machine: Machine
    costs: Costs
    jail_bytes: float
    streams: int
    beside_cpus: float
    delay_ms: float


def measure(start: str, say: Say) -> Measured:
    """Measure; ``start`` is how jails are started. Raises CommandFailed."""
    cpus = len(os.sched_getaffinity(0))
    available = available_bytes()
    with model_server() as (model, port), demo_server(CONFIG.format(port=port), start) as server:
        agents = {"short": Pace(1_000, 5), "stream": Pace(TOKENS_PER_S, int(TOKENS_PER_S * 60))}
        tokens = [add_person(server, f"capacity{number}", agents) for number in range(_WARM)]
        say(f"memory: {_WARM} users' jails")
        user_bytes, jail_bytes = _memory(server, tokens)
        streams = min(_WARM, max(4, 6 * cpus))
        say(f"CPU: {streams} streams of {TOKENS_PER_S} tokens a second, for {_STREAM_S:.0f} s")
        used, delay_ms = _streaming(server, model.pid, tokens[:streams])
    costs = Costs(
        user_bytes,
        *(max(used[name] / streams, 1e-6) for name in ("core", "egress", "jails", "spawner")),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    machine = Machine(cpus, memory, available)
    return Measured(machine, costs, jail_bytes, streams, used["model server"] + used["client"], delay_ms)


@contextmanager
def model_server() -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """The model server of :mod:`core.capacity.pace` and its port."""
    with running_module("core.capacity.pace") as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.strip().isdigit():
            raise CommandFailed("the model server did not start; what it said is above")
        yield process, int(line)


def _memory(server: DemoServer, tokens: list[str]) -> tuple[float, float]:
    """Bytes that a warm user costs the machine, and those of a jail alone (proportional)."""
    _warm(server, tokens[:_BATCH])  # what is used for the first time is in these
    lost = []
    for begin in range(_BATCH, len(tokens), _BATCH):
        before = _available()
        _warm(server, tokens[begin : begin + _BATCH])
        lost.append((before - _available()) / _BATCH)
    jails = [jail["memory_bytes"] for jail in server.admin.call("GET", "/v1/pool")["jails"]]
    jail_bytes = float(median([size for size in jails if size] or [0]))
    # the machine's own figure has the kernel's and core's part in it, and what others did meanwhile
    return max(median(lost), jail_bytes, 1.0), jail_bytes


def _available() -> float:
    """After a moment: what a turn needed is given back a little later."""
    looks = []
    for _ in range(_LOOKS):
        time.sleep(_SETTLE_S / _LOOKS)
        looks.append(available_bytes())
    return median(looks)


def _warm(server: DemoServer, tokens: list[str]) -> None:
    with ThreadPoolExecutor(4) as pool:
        for turn in pool.map(lambda token: take_turn(server.hub_port, "short", _TEXT, token), tokens):
            _check(turn)


def _streaming(server: DemoServer, model_pid: int, tokens: list[str]) -> tuple[Mapping[str, float], float]:
    """CPUs used by each while everybody streams, and a token's delay."""
    delays: list[float] = []

    def seen(_: float, delays_ms: list[float]) -> None:
        delays.extend(delays_ms)

    def listen(token: str) -> Turn:
        return take_turn(
            server.hub_port, "stream", _TEXT, token, seen, leave_after_s=_STREAM_S + 3 * _SETTLE_S
        )

    with ExitStack() as held:
        pool = held.enter_context(ThreadPoolExecutor(len(tokens)))
        turns = [pool.submit(listen, token) for token in tokens]
        time.sleep(_SETTLE_S)
        first, began_s = _cpu_s(server, model_pid), time.monotonic()
        time.sleep(_STREAM_S)
        last, took_s = _cpu_s(server, model_pid), time.monotonic() - began_s
        for turn in turns:
            _check(turn.result())
    return {name: (last[name] - first[name]) / took_s for name in last}, median(delays)


def _cpu_s(server: DemoServer, model_pid: int) -> dict[str, float]:
    services = server.service_pids()
    pids = {"spawner": server.pid, **services, "model server": model_pid, "client": os.getpid()}
    used = {name: cost(pid).cpu_s for name, pid in pids.items()}
    used["jails"] = cpu_below_s(server.pid, frozenset(services.values()))
    return used


def _check(turn: Turn) -> None:
    if turn.error or turn.first_ms is None:
        raise CommandFailed(f"a turn failed while it was measured: {turn.error or 'it said nothing'}")
