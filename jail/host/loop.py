"""The spawner's event loop: descriptors, timers and signals on one thread, and nothing else."""

import heapq
import itertools
import os
import selectors
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Final

Callback = Callable[[], None]
_MAX_WAIT_S: Final = 60.0


class Timer:
    """A call to come; ``cancel`` takes it back."""

    __slots__ = ("_call", "due_s")

    def __init__(self, due_s: float, call: Callback) -> None:
        self.due_s = due_s
        self._call: Callback | None = call

    def cancel(self) -> None:
        """Not any more."""
        self._call = None

    def run(self) -> None:
        """Call once, unless cancelled."""
        call, self._call = self._call, None
        if call is not None:
            call()


class Loop:
    """Runs callbacks until stopped; they must not block, and what they raise ends the loop."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._stopped = False
        self._signals: dict[int, Callback] = {}
        self._previous: list[tuple[int, object]] = []
        self._wake, self._wake_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._previous_wakeup = signal.set_wakeup_fd(self._wake_end, warn_on_full_buffer=False)
        self._selector.register(self._wake, selectors.EVENT_READ, self._on_wake)

    def watch(self, fd: int, call: Callback, *, write: bool = False) -> None:
        """Call when ``fd`` is readable (or writable too) or in error; replaces an earlier watch."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if write else 0)
        try:
            self._selector.modify(fd, events, call)
        except KeyError:
            self._selector.register(fd, events, call)

    def forget(self, fd: int) -> None:
        """No longer watch ``fd``; to be called before it is closed."""
        with suppress(KeyError):
            self._selector.unregister(fd)

    def later(self, delay_s: float, call: Callback) -> Timer:
        """Call once, after a delay in seconds."""
        timer = Timer(time.monotonic() + delay_s, call)
        heapq.heappush(self._timers, (timer.due_s, next(self._order), timer))
        return timer

    def on_signal(self, number: int, call: Callback) -> None:
        """Call on the loop when a signal came; several may become one call."""
        self._previous.append((number, signal.signal(number, _ignore)))
        self._signals[number] = call

    def stop(self) -> None:
        """End ``run`` after the callback that is running."""
        self._stopped = True

    def run(self) -> None:
        """Run until ``stop``."""
        while not self._stopped:
            for key, _ in self._selector.select(self._wait_s()):
                if self._wanted(key):
                    key.data()
            self._run_timers()

    def close(self) -> None:
        """Give back the signals and descriptors."""
        signal.set_wakeup_fd(self._previous_wakeup)
        for number, handler in reversed(self._previous):
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal() returned
        self._selector.close()
        os.close(self._wake)
        os.close(self._wake_end)

    def _wanted(self, key: selectors.SelectorKey) -> bool:
        # an earlier callback of the same round may have stopped the loop or forgotten this one
        return not self._stopped and self._selector.get_map().get(key.fd) is key

    def _wait_s(self) -> float:
        if not self._timers:
            return _MAX_WAIT_S
        return min(_MAX_WAIT_S, max(0.0, self._timers[0][0] - time.monotonic()))

    def _run_timers(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now and not self._stopped:
            heapq.heappop(self._timers)[2].run()

    def _on_wake(self) -> None:
        try:
            numbers = set(os.read(self._wake, 4_096))
        except BlockingIOError:
            return
        for number in sorted(numbers):
            call = self._signals.get(number)
            if call is not None and not self._stopped:
                call()


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """The wakeup pipe says it; without a Python handler nothing would be written there."""
