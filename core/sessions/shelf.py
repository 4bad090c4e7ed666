"""What a person does with their sessions besides talking: look, search, rename, fork, delete.

Like the store, it runs inside a transaction of the caller's and opens only its owner's records.
Every question has a bound, so that no user's keeps the others of a storage thread waiting.
"""

import sqlite3
from typing import NamedTuple

import msgspec

from core.sessions.errors import NoSuchSession, SessionExists, SessionTooLong
from core.sessions.store import TITLE_CHARS, Labels, SessionMeta, SessionRow, UserStore, check_session_id
from jail.wire.schema import Message

FORK_MESSAGES = 10_000
FORK_BYTES = 32 << 20
_SNIPPET_CHARS = 160
_START = 2**53

_encode = msgspec.msgpack.Encoder().encode
_decode_meta = msgspec.msgpack.Decoder(SessionMeta).decode
_decode_message = msgspec.msgpack.Decoder(Message).decode


class Cursor(NamedTuple):
    """Where a walk over sessions, the latest first, goes on: at ``session``, below ``seq``."""

    updated_s: int
    session: str
    seq: int = _START


class Hit(NamedTuple):
    """Where something was found; ``seq`` 0 is the title."""

    session: str
    title: str
    seq: int
    role: str
    snippet: str


class Found(NamedTuple):
    """What one step of a search brought; ``next`` None: it has seen everything."""

    hits: list[Hit]
    next: Cursor | None


class Budget:
    """What one step of a search may open."""

    def __init__(self, messages: int, size_bytes: int, hits: int) -> None:
        self._messages, self._bytes, self._hits = messages, size_bytes, hits

    @property
    def spent(self) -> bool:
        """Whether the step has to end."""
        return self._messages <= 0 or self._bytes <= 0 or self._hits <= 0

    def message(self, size_bytes: int) -> None:
        """One was opened."""
        self._messages -= 1
        self._bytes -= size_bytes

    def hit(self) -> None:
        """One was found."""
        self._hits -= 1


class Shelf:
    """The sessions of one store. Raises NoSuchSession, SealError, sqlite3.Error."""

    def __init__(self, store: UserStore) -> None:
        self._store = store
        self._handle = store.handle
        self._execute = store.connection.execute

    def page(self, limit: int, after: Cursor | None) -> list[SessionRow]:
        """Some sessions, the latest first, past a cursor."""
        updated_s, session = (after.updated_s, after.session) if after else (_START, "")
        rows = self._execute(
            "SELECT id, created_s, updated_s, last_seq, sealed FROM sessions"
            " WHERE updated_s < ? OR (updated_s = ? AND id > ?) ORDER BY updated_s DESC, id LIMIT ?",
            (updated_s, updated_s, session, limit),
        ).fetchall()
        return [self._row(row) for row in rows]

    def find(self, session: str) -> SessionRow:
        """One session."""
        row = self._execute(
            "SELECT id, created_s, updated_s, last_seq, sealed FROM sessions WHERE id = ?", (session,)
        ).fetchone()
        if row is None:
            raise NoSuchSession
        return self._row(row)

    def rename(self, session: str, title: str) -> SessionRow:
        """Give a session another title, of at most TITLE_CHARS; its place in the list stays."""
        return self._describe(self.find(session)._replace(title=title[:TITLE_CHARS]))

    def label(self, session: str, labels: Labels) -> SessionRow:
        """Keep what a session's last request said of itself, instead of the one's before."""
        found = self.find(session)
        return found if found.labels == labels else self._describe(found._replace(labels=labels))

    def _describe(self, row: SessionRow) -> SessionRow:
        sealed = self._handle.seal(_place(row.id), _encode(SessionMeta(row.title, row.labels)))
        self._execute("UPDATE sessions SET sealed = ? WHERE id = ?", (sealed, row.id))
        return row

    def delete(self, session: str) -> None:
        """Delete a session with its messages, turns, steps and events."""
        if not self._execute("DELETE FROM sessions WHERE id = ?", (session,)).rowcount:
            raise NoSuchSession

    def fork(self, session: str, at: int, new: str, now_s: int) -> SessionRow:
        """A new session that begins with a copy of another's first ``at`` messages.

        SessionExists; SessionTooLong past FORK_MESSAGES or FORK_BYTES; SessionNameError.
        """
        check_session_id(new)
        found = self.find(session)
        if self._execute("SELECT 1 FROM sessions WHERE id = ?", (new,)).fetchone():
            raise SessionExists
        at = min(at, found.messages)
        (size,) = self._execute(
            "SELECT coalesce(sum(bytes), 0) FROM messages WHERE session = ? AND seq <= ?", (session, at)
        ).fetchone()
        if at > FORK_MESSAGES or size > FORK_BYTES:
            raise SessionTooLong(FORK_MESSAGES, FORK_BYTES)
        self._store.ensure_session(new, found.title, now_s)
        page = self._store.read_messages(session, 0, at, FORK_BYTES, FORK_MESSAGES)
        self._store.append_messages(new, page.messages, now_s)
        return self.find(new)

    def search(self, words: str, start: Cursor | None, budget: Budget) -> Found:
        """One step of a search for text, in whatever case, the latest first."""
        wanted = words.casefold()
        hits: list[Hit] = []
        at = start or Cursor(_START, "")
        rows = self._execute(
            "SELECT id, updated_s, last_seq, sealed FROM sessions"
            " WHERE updated_s < ? OR (updated_s = ? AND id >= ?) ORDER BY updated_s DESC, id",
            (at.updated_s, at.updated_s, at.session),
        )
        for session, updated_s, last_seq, sealed in rows:
            here = at.seq if (updated_s, session) == (at.updated_s, at.session) else _START
            if budget.spent:
                return Found(hits, Cursor(updated_s, session, here))
            title = _decode_meta(self._handle.open(_place(session), sealed)).title
            if here == _START:  # where a step goes on, the one before has paid for it
                budget.message(len(sealed))
                if (shown := _snippet(title, wanted)) is not None:
                    hits.append(Hit(session, title, 0, "", shown))
                    budget.hit()
            below = self._search_in(session, title, wanted, min(here, last_seq + 1), budget, hits)
            if below > 1:
                return Found(hits, Cursor(updated_s, session, below))
        return Found(hits, None)

    def _search_in(
        self, session: str, title: str, wanted: str, below: int, budget: Budget, hits: list[Hit]
    ) -> int:
        """Search a session's messages with a lower seq, the last first; returns how far it came."""
        rows = self._execute(
            "SELECT seq, bytes, sealed FROM messages WHERE session = ? AND seq < ? ORDER BY seq DESC",
            (session, below),
        )
        for seq, size, sealed in rows:
            if budget.spent:
                break
            message = _decode_message(self._handle.open(f"messages/{session}/{seq}", sealed))
            budget.message(size)
            if (shown := _snippet(message.text, wanted)) is not None:
                hits.append(Hit(session, title, seq, message.role, shown))
                budget.hit()
            below = seq
        return below

    def _row(self, row: tuple[str, int, int, int, bytes]) -> SessionRow:
        session, created_s, updated_s, messages, sealed = row
        meta = _decode_meta(self._handle.open(_place(session), sealed))
        return SessionRow(session, created_s, updated_s, messages, meta.title, meta.labels)


def expire(connection: sqlite3.Connection, before_s: int, limit: int) -> int:
    """Delete up to ``limit`` sessions that nobody used since; returns how many. Needs no key."""
    return connection.execute(
        "DELETE FROM sessions WHERE id IN"
        " (SELECT id FROM sessions WHERE updated_s < ? ORDER BY updated_s LIMIT ?)",
        (before_s, limit),
    ).rowcount


def _place(session: str) -> str:
    return f"sessions/{session}/meta"


def _snippet(text: str, wanted: str) -> str | None:
    """A piece of the text around what is wanted, or None where it isn't there."""
    at = text.casefold().find(wanted)
    if at < 0:
        return None
    # casefolding can change lengths ("ß"): then this is near the place, which is enough
    first = max(0, min(at, len(text)) - (_SNIPPET_CHARS - len(wanted)) // 2)
    piece = text[first : first + _SNIPPET_CHARS]
    return f"{'…' if first else ''}{piece}{'…' if first + _SNIPPET_CHARS < len(text) else ''}"
