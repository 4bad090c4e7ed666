"""What is done to the server: one act after the other, by chance, each kind as often as any other."""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from core.cli.failure import CommandFailed
from scripts.havoc.people import Person
from scripts.havoc.turns import make
from scripts.havoc.world import World

_MIB = 1 << 20
_FULL_S = (0.5, 2.5)
_JUMPS_S = (-3_600.0, -600.0, -30.0, 0.0, 30.0, 600.0, 3_600.0)
"""Within what a session's log is kept for: an event that is forgotten cannot be accounted for."""
_READY_S = 120.0


class Monkey:
    """Hurts a server.

    Args:
        hog: who eats their jail's memory.
        say: told what is done.
    """

    def __init__(self, world: World, hog: Person, rng: random.Random, say: Callable[[str], None]) -> None:
        self.counts: Counter[str] = Counter()
        self.recoveries_s: dict[str, list[float]] = {}
        self.faults: list[str] = []
        self._world, self._server = world, world.server
        self._hog, self._rng, self._say = hog, rng, say
        self._acts = {
            "worker killed": self._kill_worker,
            "core killed": self._kill_core,
            "egress killed": self._kill_egress,
            "spawner killed": self._kill_spawner,
            "everything killed": self._kill_everything,
            "memory eaten": self._eat_memory,
            "clock jumped": self._jump,
            **({"disk full": self._fill_disk} if world.disk.small else {}),
        }

    async def go_on(self, until_s: float, pauses_s: tuple[float, float]) -> None:
        """Do one after the other until then (monotonic)."""
        left: list[str] = []
        while time.monotonic() < until_s:
            left = left or self._rng.sample(sorted(self._acts), len(self._acts))
            name = left.pop()
            self._say(name)
            self.counts[name] += 1
            began_s = time.monotonic()
            await self._acts[name]()
            await self._be_ready()
            self.recoveries_s.setdefault(name, []).append(time.monotonic() - began_s)
            await asyncio.sleep(self._rng.uniform(*pauses_s))

    async def _be_ready(self) -> None:
        """Wait until the server is whole again."""
        deadline_s = time.monotonic() + _READY_S
        while not await asyncio.to_thread(self._whole):
            if self._server.process.poll() is not None:
                self.faults.append(f"the server ended by itself: {self._server.process.returncode}")
                await self._start()
            if time.monotonic() > deadline_s:
                self.faults.append(f"the server was not back within {_READY_S:.0f} s")
                return
            await asyncio.sleep(0.05)
        self._world.note_groups()

    def _whole(self) -> bool:
        try:
            return bool(self._server.admin.call("GET", "/v1/status")["egress"] == "up")
        except CommandFailed:
            return False

    async def _kill_worker(self) -> None:
        try:
            jails = (await asyncio.to_thread(self._server.admin.call, "GET", "/v1/status"))["jails"]
        except CommandFailed:
            return
        if pids := [jail["pid"] for jail in jails if jail["pid"]]:
            _kill(self._rng.choice(pids))

    async def _kill_core(self) -> None:
        await self._kill_service("core")

    async def _kill_egress(self) -> None:
        await self._kill_service("egress")

    async def _kill_service(self, name: str) -> None:
        killed = self._world.service(name)
        _kill(killed)
        deadline_s = time.monotonic() + _READY_S
        while self._world.service(name) in (0, killed) and time.monotonic() < deadline_s:
            await asyncio.sleep(0.02)

    async def _kill_spawner(self) -> None:
        self._server.process.kill()
        await self._start()

    async def _kill_everything(self) -> None:
        """As a power cut does, but for what the disk had not written yet."""
        self._server.process.send_signal(signal.SIGSTOP)
        for name in self._rng.sample(("core", "egress"), 2):
            _kill(self._world.service(name))
        self._server.process.kill()
        await self._start()

    async def _start(self) -> None:
        await asyncio.to_thread(self._server.wait)
        await asyncio.sleep(self._rng.uniform(0.0, 0.5))
        await asyncio.to_thread(self._server.begin, self._server.hub_port)

    async def _fill_disk(self) -> None:
        self._world.disk.fill(self._rng.choice((0, 0, 2 * _MIB)))
        await asyncio.sleep(self._rng.uniform(*_FULL_S))
        self._world.disk.free()

    async def _eat_memory(self) -> None:
        await self._hog.take(make("hog", f"{self._hog.name}-{self.counts['memory eaten']:05d}"))

    async def _jump(self) -> None:
        self._world.clock.set(self._rng.choice(_JUMPS_S))


def _kill(pid: int) -> None:
    if pid:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
