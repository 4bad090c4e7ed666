"""A turn's wall clock in the worker: it stands still while a person is asked something.

Core has a clock of its own, which counts; this one lets a turn end in good order before that.
"""

import asyncio


class Clock:
    """Runs from its making on. Used on one loop.

    Args:
        limit_s: how long the turn may run (in seconds).
    """

    def __init__(self, limit_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._left_s = limit_s
        self._up: asyncio.Future[None] = self._loop.create_future()
        self._since_s = self._loop.time()
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(limit_s, self._ring)

    @property
    def up(self) -> "asyncio.Future[None]":
        """Done once the time is up."""
        return self._up

    def hold(self, held: bool) -> None:
        """Stop, or go on; harmless when it does so already."""
        if held and self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._left_s = max(0.0, self._left_s - (self._loop.time() - self._since_s))
        elif not held and self._timer is None and not self._up.done():
            self._since_s = self._loop.time()
            self._timer = self._loop.call_later(self._left_s, self._ring)

    def close(self) -> None:
        """Ring no more."""
        if self._timer is not None:
            self._timer.cancel()
        self._up.cancel()

    def _ring(self) -> None:
        self._timer = None
        if not self._up.done():
            self._up.set_result(None)
