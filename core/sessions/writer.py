"""Keeps a turn's events in its session's log: one write under way, the rest gathers.

Those who watch the session are told of events once these are committed.
"""

import threading
import time
from collections.abc import Callable

import structlog

from core.acting import current_request
from core.errors import CoreError
from core.sessions.eventlog import EventLog
from core.sessions.events import EventRecord, SessionEvent
from core.sessions.feed import Feeds
from core.sessions.journal import TurnPlace
from core.sessions.log import LogEvent
from core.sessions.storage import Storage
from core.sessions.store import UserStore

_log = structlog.get_logger()

_Pending = list[tuple[LogEvent, Callable[[], None]]]


class EventWriter:
    """The :class:`core.sessions.log.Persist` of a stored session's turn. Thread-safe.

    When an event cannot be stored the loss is logged, once, and the turn goes on: its messages and
    steps, whose loss would matter, are refused by themselves.
    """

    def __init__(
        self, storage: Storage, feeds: Feeds, place: TurnPlace, max_bytes: int, age_s: float
    ) -> None:
        self._storage = storage
        self._feeds = feeds
        self._place = place
        self._max_bytes = max_bytes
        self._age_s = age_s
        self._lock = threading.Lock()
        self._pending: _Pending = []
        self._writing: _Pending = []
        self._warned = False
        self._request = current_request()

    def add(self, event: LogEvent, accepted: Callable[[], None]) -> None:
        """Take an event; ``accepted`` is called after its commit, or after the loss was logged."""
        with self._lock:
            self._pending.append((event, accepted))

    def kick(self) -> None:
        """Begin to write what was added, unless a write is under way, which goes on with it."""
        with self._lock:
            if self._writing:
                return
            self._writing, self._pending = self._pending, []
            writing = self._writing
        if writing:
            self._write(writing, self._written)

    def flush(self) -> None:
        """Hand all that is pending to storage, ahead of what is submitted next for this user."""
        with self._lock:
            pending, self._pending = self._pending, []
        if pending:
            self._write(pending, lambda: None)

    def _written(self) -> None:
        with self._lock:
            self._writing = []
        self.kick()

    def _write(self, pending: _Pending, then: Callable[[], None]) -> None:
        place = self._place
        records = [
            EventRecord(event.id, place.turn, event.time_ms // 1_000, event.data) for event, _ in pending
        ]

        def work(store: UserStore) -> None:
            log = EventLog(store)
            log.append(place.session, records)
            log.trim(place.session, self._max_bytes, int(time.time() - self._age_s))

        def done(_nothing: None) -> None:
            self._feeds.publish(place.handle.user, place.session, shown)
            for _event, accepted in pending:
                accepted()
            then()

        def shown() -> list[SessionEvent]:
            return [SessionEvent(e.id, place.turn, e.time_ms, e.item, len(e.data)) for e, _ in pending]

        def failed(error: CoreError) -> None:
            if not self._warned:
                self._warned = True
                _log.error("events_not_stored", turn=place.turn, request_id=self._request, error=str(error))
            done(None)

        size = sum(len(record.data) for record in records)
        self._storage.submit(place.handle, work, done, failed, size_bytes=size, lazy=True)
