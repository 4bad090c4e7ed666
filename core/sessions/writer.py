"""Keeps a turn's events in its session's log on disk: one write under way, the rest gathers."""

import threading
import time
from collections.abc import Callable

import structlog

from core.errors import CoreError
from core.sessions.log import LogEvent
from core.sessions.storage import Storage
from core.sessions.store import EventRecord, UserStore
from core.vault.handle import UserHandle

_log = structlog.get_logger()

_Pending = list[tuple[LogEvent, Callable[[], None]]]


class EventWriter:
    """The :class:`core.sessions.log.Persist` of a stored session's turn. Thread-safe.

    When an event cannot be stored the loss is logged, once, and the turn goes on: its messages and
    steps, whose loss would matter, are refused by themselves.
    """

    def __init__(
        self, storage: Storage, handle: UserHandle, session: str, turn: str, max_bytes: int, age_s: float
    ) -> None:
        self._storage = storage
        self._handle = handle
        self._session = session
        self._turn = turn
        self._max_bytes = max_bytes
        self._age_s = age_s
        self._lock = threading.Lock()
        self._pending: _Pending = []
        self._writing: _Pending = []
        self._warned = False

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
        records = [
            EventRecord(event.id, self._turn, int(event.created_s), event.data) for event, _ in pending
        ]

        def work(store: UserStore) -> None:
            store.append_events(self._session, records)
            store.trim_events(self._session, self._max_bytes, int(time.time() - self._age_s))

        def done(_nothing: None) -> None:
            for _event, accepted in pending:
                accepted()
            then()

        def failed(error: CoreError) -> None:
            if not self._warned:
                self._warned = True
                _log.error("events_not_stored", turn=self._turn, error=str(error))
            done(None)

        size = sum(len(record.data) for record in records)
        self._storage.submit(self._handle, work, done, failed, size_bytes=size, lazy=True)
