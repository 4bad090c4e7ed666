"""A verb's round trip from a worker in a jail to its user's actor and back, beside a bare PAIR.

The worker asks ``step.begin`` in a frame of 200 bytes and a service answers at once. Core's side is
the real edge, user actor, metrics and schema; the floor is two processes with a pyzmq PAIR each,
200 bytes both ways. ``placement``: core and worker (and the floor's two) on "one" CPU, on "two", or
"free" to go where the scheduler puts them. ``worker``: see :mod:`scripts.benches._hop_worker`.
"""

import itertools
import json
import os
import secrets
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from actors.approvals import ApprovalRules
from actors.base import Ref, tell
from actors.channel import Bounds
from actors.edge import Edge
from actors.service import RequestKey, TurnSpec, VerbRequest
from actors.supervisor import stop_and_wait
from actors.user import UserActor
from actors.user_messages import JailExited, JailStarted, StartTurn
from core.log import configure_logging
from core.metrics import Metrics
from core.observer import CoreObserver
from jail.wire.schema import Agent, Delta, Done, Limits
from scripts.benches._pair import running_pair
from scripts.benches._yard import BenchError, Yard, open_yard
from scripts.benches.result import Result, median_and_p99
from tests.fakes.approval_book import FakeBook
from tests.fakes.handle import FakeHandle
from tests.fakes.sink import FakeSink

_BATCH, _BATCHES = 400, 8
_WARM_UP = 200
_LIMIT_S = 60.0
# as the real worker's start does: its library on the path, and no ssl
_RUN = """
import runpy, sys
sys.path.insert(0, "/certosa/lib")
sys.modules["ssl"] = None
runpy.run_path("/home/user/hop_worker.py", run_name="__main__")
"""
_COMMAND = ("/usr/bin/python3", "-I", "-S", "-c", _RUN)


class _AtOnce:
    """A service that answers while it is asked."""

    def serve(self, request: VerbRequest) -> None:
        request.reply.done(Done())

    def credit(self, key: RequestKey, count: int) -> None:
        """Nothing here is a stream."""

    def cancel(self, key: RequestKey) -> None:
        """It was answered already."""


class _OneJail:
    """Implements actors.user.Jails with a jail that runs already."""

    def __init__(self, edge: socket.socket) -> None:
        self._edge = edge

    def launch(self, life: int, user: str, owner: Ref, request: str) -> None:  # noqa: ARG002 - the protocol's
        self._owner = owner
        tell(owner, JailStarted(life, self._edge))

    def used(self, life: int, busy: bool) -> None:
        """Nobody keeps a pool here."""

    def kill(self, life: int, fault: str | None) -> None:  # noqa: ARG002 - the protocol's
        tell(self._owner, JailExited(life, "signal 9"))


class _Core:
    """An edge and a user actor, as core has them."""

    def __init__(self, user: str, sock: socket.socket) -> None:
        self._handle = FakeHandle(user)
        self._edge = Edge("edge")
        self._edge.start()
        lives = itertools.count(1)
        self._actor: Ref = UserActor.start(
            f"user-{user}",
            None,
            CoreObserver(Metrics(), lambda *_: None),
            user=user,
            edge=self._edge,
            bounds=Bounds,  # no pace: the benchmark goes as fast as it can
            jails=_OneJail(sock),
            services={"step.begin": _AtOnce()},
            mode=lambda _verb: "on",
            book=FakeBook(),
            rules=ApprovalRules(),
            next_life=lambda: next(lives),
            start_timeout_s=_LIMIT_S,
        )

    def batch(self, count: int) -> list[float]:
        """Have the worker ask so often; returns what each took (in microseconds)."""
        sink = FakeSink()
        agent = Agent("bench", str(count), "none", "none", limits=Limits())
        turn = f"turn_{secrets.token_hex(8)}"
        self._actor.tell(StartTurn(TurnSpec(turn, self._handle, agent, sink, None)))
        if not sink.ended.wait(_LIMIT_S) or not sink.items:
            raise BenchError(f"the worker did not finish its batch: {sink.outcomes}")
        item = sink.items[0]
        assert isinstance(item, Delta)
        took: list[float] = json.loads(item.text)
        return took

    def close(self) -> None:
        stop_and_wait(self._actor, _LIMIT_S)
        self._edge.stop()


def measure() -> Iterator[Result]:
    """Every placement this machine has, with both kinds of worker."""
    configure_logging("error", "json", "bench")
    everywhere = os.sched_getaffinity(0)
    first, *others = sorted(everywhere)
    placements = {"one": ({first}, {first}), "free": (everywhere, everywhere)}
    if others:
        placements["two"] = ({first}, {others[0]})
    with open_yard(1, _COMMAND) as yard:
        try:
            for placement, (core_cpus, worker_cpus) in placements.items():
                for kind in ("asyncio", "blocking"):
                    yield _measure(yard, kind, placement, core_cpus, worker_cpus)
        finally:
            os.sched_setaffinity(0, everywhere)


def _measure(yard: Yard, kind: str, placement: str, core_cpus: set[int], worker_cpus: set[int]) -> Result:
    """Batches of both in turn. What is started inherits the CPUs that this thread is on."""
    took: list[float] = []
    floor: list[float] = []
    go_to_core, go_to_worker = (partial(os.sched_setaffinity, 0, c) for c in (core_cpus, worker_cpus))
    go_to_worker()
    with _jail(yard, kind) as sock:
        go_to_core()
        core = _Core(yard.user(0), sock)
        try:
            with running_pair(yard.home(0).parents[1] / "pair", go_to_worker, go_to_core) as pair:
                core.batch(_WARM_UP)
                pair.batch(_WARM_UP)
                for _ in range(_BATCHES):
                    floor += pair.batch(_BATCH)
                    took += core.batch(_BATCH)
        finally:
            core.close()
    median, p99 = median_and_p99(took)
    varied: dict[str, str | int | float] = {
        "placement": placement, "worker": kind, "bytes": 200, "n": len(took)
    }  # fmt: skip
    return Result("hop", varied, median, p99, "us", median_and_p99(floor)[0])


@contextmanager
def _jail(yard: Yard, kind: str) -> Iterator[socket.socket]:
    """A jail with the benchmark's worker; gives core's end of its edge."""
    home = yard.home(0)
    script, kind_file = home / "hop_worker.py", home / "kind"
    # by its path: importing it would make this process a worker's, without ssl
    shutil.copyfile(Path(__file__).with_name("_hop_worker.py"), script)
    kind_file.write_text(kind, encoding="ascii")
    for path in (script, kind_file):
        yard.give(0, path)
    started: list[socket.socket] = []
    life = yard.start(0, lambda _life, edge, _spawn_s: started.append(edge))
    try:
        yard.loop.run_until(lambda: bool(started))
        yield started[0]
    finally:
        yard.end([life])
