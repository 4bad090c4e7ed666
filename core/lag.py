"""How late loops run, looked at a few times a second: a timer that comes late says by how much."""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

PERIOD_S = 0.25


class Timers(Protocol):
    """Calls back later on the thread that is watched."""

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """After ``delay_s`` seconds."""
        ...


async def watch_loop(lagged: Callable[[float], None]) -> None:
    """Tell ``lagged`` how late this event loop runs, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        before_s = loop.time()
        await asyncio.sleep(PERIOD_S)
        lagged(max(0.0, loop.time() - before_s - PERIOD_S))


def watch_timers(timers: Timers, lagged: Callable[[float], None]) -> None:
    """The same for a thread with timers, for as long as it runs."""
    due_s = time.monotonic() + PERIOD_S

    def look() -> None:
        lagged(max(0.0, time.monotonic() - due_s))
        watch_timers(timers, lagged)

    timers.call_later(PERIOD_S, look)
