"""How many turns may run: on the server, for one user, and none while the server stops or lags."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable

import structlog

from core.config import HubSection
from core.hub.errors import HubError, over_quota
from core.metrics import Metrics

_log = structlog.get_logger()


class Admission:
    """Counts running turns. Thread-safe; made on the loop it serves.

    Args:
        config: the bounds.
        metrics: told of refusals.
        excess: by what a user's home is over its limit, "" if it is not.
    """

    def __init__(
        self, config: HubSection, metrics: Metrics, excess: Callable[[str], str] = lambda _: ""
    ) -> None:
        self._excess = excess
        self._config = config
        self._metrics = metrics
        self._lock = threading.Lock()
        self._by_user: Counter[str] = Counter()
        self._running = 0
        self._idle: asyncio.Event = asyncio.Event()
        self._idle.set()
        self._loop = asyncio.get_running_loop()
        self.stopping = False
        self.disk_low = False
        self.lag_s = 0.0
        metrics.turns_limited(config.max_turns)

    def apply(self, config: HubSection) -> None:
        """Use other bounds; what runs goes on."""
        with self._lock:
            self._config = config
        self._metrics.turns_limited(config.max_turns)

    def note_free(self, free_bytes: int) -> None:
        """How much is free on the disk now; says so in the log when that changes something."""
        self._metrics.disk(free_bytes, int(self._config.min_free_bytes))
        low = free_bytes < self._config.min_free_bytes
        if low != self.disk_low:
            self.disk_low = low
            if low:
                _log.error("disk_low", free_bytes=free_bytes, min_free_bytes=self._config.min_free_bytes)
            else:
                _log.info("disk_recovered", free_bytes=free_bytes)

    @property
    def running(self) -> int:
        """Turns that run now."""
        return self._running

    def admit(self, user: str) -> Callable[[], None]:
        """Count a turn in, or raise HubError 429 or 503; what is returned counts it out, once."""
        with self._lock:
            refusal = self._refusal(user)
            if refusal is None:
                self._by_user[user] += 1
                self._running += 1
                self._idle.clear()
        if refusal is not None:
            reason, error = refusal
            self._metrics.turn_refused(reason)
            raise error
        left = False

        def leave() -> None:
            nonlocal left
            with self._lock:
                if left:
                    return
                left = True
                self._running -= 1
                self._by_user[user] -= 1
                if not self._by_user[user]:
                    del self._by_user[user]
                empty = not self._running
            if empty:
                self._post_idle()

        return leave

    async def drained(self, timeout_s: float) -> bool:
        """Wait for the last turn's end; whether it came in time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def _post_idle(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._note_idle)
        except RuntimeError:
            _log.debug("turn_ended_after_loop")  # the loop is closed: nobody waits for this

    def _note_idle(self) -> None:
        if not self._running:
            self._idle.set()

    def _refusal(self, user: str) -> tuple[str, HubError] | None:
        config = self._config
        if self.stopping:
            return "stopping", HubError(
                503, "the server is stopping; try again", "unavailable", retry_after_s=5
            )
        if self.disk_low:
            return "disk_full", HubError(
                507,
                "the server's disk is full, so no new turn begins: tell its operator",
                "disk_full",
                retry_after_s=30,
                headers={"x-should-retry": "false"},  # that takes a person; clients need not try at once
            )
        if what := self._excess(user):
            return "disk_quota", over_quota(what)
        if self._by_user[user] >= config.max_turns_per_user:
            return "user_turns", HubError(
                429,
                f"{config.max_turns_per_user} turns of yours run already: wait for one to end",
                "too_many_turns",
                retry_after_s=2,
            )
        if self._running >= config.max_turns:
            return "server_turns", HubError(
                429, "the server has all the turns it can run; try again", "overloaded", retry_after_s=5
            )
        if self.lag_s > config.max_lag_s:
            # a loop that late answers nobody well: new turns would make it later for those that run
            return "loop_lag", HubError(
                429, "the server is too busy just now; try again", "overloaded", retry_after_s=5
            )
        return None
