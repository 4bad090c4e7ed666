"""A session's event log on disk: append, cut, read. Runs inside a transaction of the caller's.

Ids only grow within a session, and are never given twice: whoever holds one may ask for what
follows it, whatever happened meanwhile.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from core.sessions.errors import NoSuchSession
from core.sessions.events import EventRecord, LogItem, SessionEvent, decode_event, encode_event
from core.sessions.store import UserStore

_CRASH_GAP = 1 << 20
"""What a crash of the machine may have taken: events that a client was given, and a power cut undid.

The log's own commits do not wait for the disk, so after an interrupted turn ids go on far past the
last that is there, and none of theirs is used again."""


class LogPage(NamedTuple):
    """Some events in order.

    ``oldest`` is the oldest id that is kept (``last`` + 1 where none is), ``last`` the newest ever,
    ``running`` the turn that runs in the session, or "".
    """

    events: tuple[SessionEvent, ...]
    oldest: int
    last: int
    running: str


class EventLog:
    """The logs of one store. Raises SealError, sqlite3.Error."""

    def __init__(self, store: UserStore) -> None:
        self._handle = store.handle
        self._connection = store.connection
        self._execute = store.connection.execute

    def last_id(self, session: str) -> int:
        """The newest event's id, whether it is kept or not. NoSuchSession."""
        row = self._execute("SELECT last_event FROM sessions WHERE id = ?", (session,)).fetchone()
        if row is None:
            raise NoSuchSession
        return int(row[0])

    def append(self, session: str, events: Sequence[EventRecord]) -> None:
        """Add events, whose ids only grow."""
        self._connection.executemany(
            "INSERT INTO events (session, id, turn, created_s, bytes, sealed) VALUES (?,?,?,?,?,?)",
            [
                (session, e.id, e.turn, e.created_s, len(e.data),
                 self._handle.seal(f"events/{session}/{e.id}", e.data))
                for e in events
            ],
        )  # fmt: skip
        self._execute(
            "UPDATE sessions SET last_event = max(last_event, ?), event_bytes = event_bytes + ? WHERE id = ?",
            (events[-1].id, sum(len(e.data) for e in events), session),
        )

    def add(
        self, session: str, turn: str, items: Sequence[LogItem], time_ms: int, after_id: int = 0
    ) -> list[SessionEvent]:
        """Add items past all that is there and past ``after_id``; returns them with their ids."""
        first = max(self.last_id(session), after_id) + 1
        records = [
            EventRecord(first + n, turn, time_ms // 1_000, encode_event(time_ms, item))
            for n, item in enumerate(items)
        ]
        self.append(session, records)
        return [decode_event(record) for record in records]

    def interrupted(self, session: str, turn: str, items: Sequence[LogItem], time_ms: int) -> int:
        """Add what follows in a turn whose process is gone, and may have taken events with it.

        Returns the last one's id.
        """
        return self.add(session, turn, items, time_ms, self.last_id(session) + _CRASH_GAP)[-1].id

    def trim(self, session: str, max_bytes: int, oldest_s: int) -> None:
        """Cut the log to ``max_bytes``, oldest first, and to what is not older than ``oldest_s``."""
        found = self._execute("SELECT event_bytes FROM sessions WHERE id = ?", (session,)).fetchone()
        total = found[0] if found else 0
        cut, freed = 0, 0
        rows = self._execute(
            "SELECT id, bytes, created_s FROM events WHERE session = ? ORDER BY id", (session,)
        )
        for event, size, created_s in rows:
            if total - freed <= max_bytes and created_s >= oldest_s:
                break
            cut, freed = event, freed + size
        if cut:
            self._execute("DELETE FROM events WHERE session = ? AND id <= ?", (session, cut))
            self._execute("UPDATE sessions SET event_bytes = event_bytes - ? WHERE id = ?", (freed, session))

    def read(self, session: str, after_id: int, max_events: int, max_bytes: int) -> LogPage:
        """Events past ``after_id``: at least one where there is any, then up to the bounds.

        NoSuchSession.
        """
        last = self.last_id(session)
        (oldest,) = self._execute("SELECT min(id) FROM events WHERE session = ?", (session,)).fetchone()
        running = self._execute(
            "SELECT turn FROM turns WHERE state = 'started' AND session = ? LIMIT 1", (session,)
        ).fetchone()
        events: list[SessionEvent] = []
        size = 0
        for record in self._records(session, after_id, max_events):
            event = decode_event(record)
            size += event.size
            if events and size > max_bytes:
                break
            events.append(event)
        oldest = last + 1 if oldest is None else oldest
        return LogPage(tuple(events), oldest, last, running[0] if running else "")

    def before(self, session: str, turn: str) -> int:
        """The id to ask from for all of a turn that is still kept. NoSuchSession."""
        (first,) = self._execute(
            "SELECT min(id) FROM events WHERE session = ? AND turn = ?", (session, turn)
        ).fetchone()
        return self.last_id(session) if first is None else int(first) - 1

    def newest_first(self, session: str, turn: str) -> Iterator[EventRecord]:
        """What is kept of a turn's events, the newest first."""
        rows = self._execute(
            "SELECT id, turn, created_s, sealed FROM events WHERE session = ? AND turn = ? ORDER BY id DESC",
            (session, turn),
        )
        for event, owner, created_s, sealed in rows:
            yield EventRecord(event, owner, created_s, self._handle.open(f"events/{session}/{event}", sealed))

    def _records(self, session: str, after_id: int, limit: int) -> Iterator[EventRecord]:
        rows = self._execute(
            "SELECT id, turn, created_s, sealed FROM events WHERE session = ? AND id > ? ORDER BY id LIMIT ?",
            (session, after_id, limit),
        )
        for event, turn, created_s, sealed in rows:
            yield EventRecord(event, turn, created_s, self._handle.open(f"events/{session}/{event}", sealed))
