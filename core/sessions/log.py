"""A turn's event log in memory: the turn appends at its speed, each client reads at its own.

Actor threads append; readers live on the hub's loop and are woken once for a burst. The log is a
window bounded by bytes and age: a reader that falls out of it is told so and has to begin anew.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from actors.service import SinkItem
from core.loop_calls import LoopCalls
from core.sessions.events import Resumed, encode_event
from jail.wire.schema import Failure, TurnEnd

_MAX_BATCH = 256
_EVENT_BYTES = 400
"""What an event takes in memory beside its data; a window of single letters is bounded too."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class LogEvent:
    """An event with its durable id (in its session, from 1 up); ``data`` is as it is kept."""

    id: int
    time_ms: int  # Unix time
    item: SinkItem | Resumed
    data: bytes


@dataclass(frozen=True, slots=True)
class Behind:
    """The reader fell out of the window; ``last_id`` is the last event that it was given."""

    last_id: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The turn has ended and every event before it was given."""

    outcome: TurnEnd | Failure


class Persist(Protocol):
    """Keeps events on disk."""

    def add(self, event: LogEvent, accepted: Callable[[], None]) -> None:
        """Take an event, in order; calls nothing back yet."""
        ...

    def kick(self) -> None:
        """Begin to store what was added; each ``accepted`` is called once, from any thread."""
        ...


class TurnLog:
    """The log of one turn, and its :class:`actors.service.TurnSink`.

    Args:
        calls: those of the loop where the readers live.
        first_id: the first event's id.
        max_bytes: how much memory the events kept for readers may take.
        max_age_s: how old (in seconds) a kept event may be.
        persist: where events are kept, or None for a log in memory alone.
        on_finish: called once with the outcome, on the thread that finished the turn.
        on_lost: decides what becomes of a turn that lost its jail; None: it fails.
    """

    def __init__(
        self,
        calls: LoopCalls,
        first_id: int,
        max_bytes: int,
        max_age_s: float,
        persist: Persist | None,
        on_finish: Callable[[TurnEnd | Failure], None],
        on_lost: Callable[[Failure, bool], None] | None = None,
    ) -> None:
        self._calls = calls
        self._first_id = self._next_id = first_id
        self._max_bytes = max_bytes
        self._max_age_s = max_age_s
        self._persist = persist
        self._on_finish = on_finish
        self._on_lost = on_lost
        self._lock = threading.Lock()
        self._window: deque[LogEvent] = deque()
        self._window_bytes = 0
        self._ending = False
        self._outcome: TurnEnd | Failure | None = None
        self._wake_posted = False
        self._readers: set[asyncio.Event] = set()

    # -- any thread -------------------------------------------------------------------------------

    def append(self, item: SinkItem | Resumed, accepted: Callable[[], None]) -> None:
        """Take an event; ``accepted`` follows once it is kept (at once if in memory alone)."""
        now_s = time.time()
        time_ms = int(now_s * 1_000)
        data = encode_event(time_ms, item)
        with self._lock:
            late = self._ending
            if not late:
                event = LogEvent(self._next_id, time_ms, item, data)
                self._next_id += 1
                self._window.append(event)
                self._window_bytes += len(data) + _EVENT_BYTES
                self._trim(now_s)
                if self._persist is not None:
                    self._persist.add(event, accepted)
                wake, self._wake_posted = not self._wake_posted, True
        if late:
            _log.error("event_after_turn_end", event_type=type(item).__name__)
            accepted()
            return
        if wake:
            self._calls.post(self._wake)
        if self._persist is None:
            accepted()
        else:
            self._persist.kick()

    def finish(self, outcome: TurnEnd | Failure) -> None:
        """End the log; a second call is a bug, is logged and changes nothing."""
        with self._lock:
            again, self._ending = self._ending, True
        if again:
            _log.error("turn_finished_twice")
            return
        try:
            # before any reader can know: whoever is told the end may use the session again
            self._on_finish(outcome)
        finally:
            with self._lock:
                self._outcome = outcome
                # whoever is called knows this log: so it goes with its last reader, not with the garbage
                self._on_finish, self._on_lost = _finished, None
            self._calls.post(self._wake)

    def lost(self, failure: Failure, again: bool) -> None:
        """The jail is gone from under the turn: it ends, unless it may be started anew."""
        with self._lock:
            on_lost = self._on_lost
        if on_lost is None:
            self.finish(failure)
        else:
            on_lost(failure, again)

    @property
    def last_id(self) -> int:
        """The newest event's id; the one before the first's while there is none."""
        return self._next_id - 1

    @property
    def finished(self) -> bool:
        """Whether the turn has ended."""
        return self._ending

    # -- the hub's loop ---------------------------------------------------------------------------

    async def watch(
        self, after_id: int | None = None, idle_s: float | None = None
    ) -> AsyncGenerator[tuple[LogEvent, ...] | Behind | Finished, None]:
        """Events past ``after_id`` (None: all of this turn) in batches as they come.

        After every ``idle_s`` seconds without one, an empty batch.
        Lastly Behind or Finished.
        Close the iterator (``contextlib.aclosing``) when leaving it early.
        """
        after_id = self._first_id - 1 if after_id is None else after_id
        woken = asyncio.Event()
        alarm = _Alarm(woken, idle_s)
        self._readers.add(woken)
        try:
            while True:
                woken.clear()
                found = self._read(after_id)
                if found is None:
                    if await alarm.wait():
                        yield ()
                    continue
                yield found
                if not isinstance(found, tuple):
                    return
                after_id = found[-1].id
        finally:
            self._readers.discard(woken)
            alarm.close()

    def _read(self, after_id: int) -> tuple[LogEvent, ...] | Behind | Finished | None:
        with self._lock:
            oldest = self._window[0].id if self._window else self._next_id
            if after_id + 1 < oldest:
                return Behind(after_id)
            window, seen = self._window, after_id + 1 - oldest  # ids have no gaps within a turn
            # by index, which a deque finds from its nearer end: what is new is at the far one
            batch = tuple(window[i] for i in range(seen, min(seen + _MAX_BATCH, len(window))))
            if batch:
                return batch
            return Finished(self._outcome) if self._outcome is not None else None

    def _trim(self, now_s: float) -> None:
        oldest_ms = int((now_s - self._max_age_s) * 1_000)
        # the newest stays, whatever its size: a reader that keeps up loses nothing
        while len(self._window) > 1 and (
            self._window_bytes > self._max_bytes or self._window[0].time_ms < oldest_ms
        ):
            self._window_bytes -= len(self._window.popleft().data) + _EVENT_BYTES

    def _wake(self) -> None:
        with self._lock:
            self._wake_posted = False
        for woken in self._readers:
            woken.set()


def _finished(_outcome: TurnEnd | Failure) -> None:
    """Nobody is told a second time."""


class _Alarm:
    """Wakes a reader after a silence. One timer for many waits: most of them are short."""

    def __init__(self, woken: asyncio.Event, silence_s: float | None) -> None:
        self._woken = woken
        self._silence_s = silence_s
        self._loop = asyncio.get_running_loop()
        self._due_s = 0.0
        self._rang = False
        self._timer: asyncio.TimerHandle | None = None

    async def wait(self) -> bool:
        """Wait to be woken; whether it was by the silence."""
        if self._silence_s is not None:
            self._rang = False
            self._due_s = self._loop.time() + self._silence_s
            if self._timer is None:
                self._timer = self._loop.call_at(self._due_s, self._ring)
        await self._woken.wait()
        return self._rang

    def close(self) -> None:
        """Wake nobody any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _ring(self) -> None:
        if self._loop.time() < self._due_s:
            self._timer = self._loop.call_at(self._due_s, self._ring)
            return
        self._timer = None
        self._rang = True
        self._woken.set()
