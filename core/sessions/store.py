"""What is kept for one user, sealed record by record; runs inside a transaction of the caller's.

A record's place (table, session, row) is sealed in with it, so a row that was moved, a file that
was swapped or a handle that was mixed up opens nothing: every read raises SealError then.
"""

import re
import sqlite3
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

import msgspec

from core.errors import SealError
from core.sessions.errors import SessionNameError, SessionsError
from core.sessions.recovery import StepCall, StepRow
from core.vault.handle import UserHandle
from jail.wire.schema import Failure, Message, TurnEnd

_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_OWNER_PLACE = "meta/owner"
TITLE_CHARS = 80

TurnState = Literal["started", "ended", "failed", "cancelled"]


def check_session_id(session_id: str) -> str:
    """Return a session id that people chose, or raise SessionNameError saying what one looks like."""
    if not _SESSION_ID.fullmatch(session_id):
        raise SessionNameError(
            "a session id is 1 to 64 characters, letters, digits, dot, dash or underscore,"
            " and begins with a letter or a digit"
        )
    return session_id


class Labels(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the last request of a session said of itself: ``user`` and ``metadata`` of the two APIs."""

    user: Annotated[str, msgspec.Meta(max_length=512)] = ""
    metadata: dict[str, str] = {}


class SessionMeta(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is sealed with a session's row."""

    title: Annotated[str, msgspec.Meta(max_length=TITLE_CHARS)] = ""
    labels: Labels = Labels()


class Outcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a turn ended: one of the two is set."""

    end: TurnEnd | None = None
    failure: Failure | None = None


class SessionState(NamedTuple):
    """A session's counters."""

    last_seq: int
    last_event: int


class SessionRow(NamedTuple):
    """A session as lists show it; times are Unix seconds."""

    id: str
    created_s: int
    updated_s: int
    messages: int
    title: str
    labels: Labels = Labels()


class Page(NamedTuple):
    """Some messages in order; ``last_seq`` is where the next page begins after."""

    messages: tuple[Message, ...]
    last_seq: int
    more: bool


_encode = msgspec.msgpack.Encoder().encode
_decode_message = msgspec.msgpack.Decoder(Message).decode
_decode_meta = msgspec.msgpack.Decoder(SessionMeta).decode
_decode_step = msgspec.msgpack.Decoder(StepCall).decode
_decode_outcome = msgspec.msgpack.Decoder(Outcome).decode


class UserStore:
    """One user's records in one open database. Raises SealError, SessionsError, sqlite3.Error."""

    def __init__(self, connection: sqlite3.Connection, handle: UserHandle) -> None:
        self.handle = handle
        self.connection = connection
        self._execute = connection.execute
        self._check_owner()

    def _check_owner(self) -> None:
        row = self._execute("SELECT sealed FROM meta WHERE key = 'owner'").fetchone()
        if row is not None:
            if self.handle.open(_OWNER_PLACE, row[0]) != self.handle.user.encode():
                raise SealError("this database is another user's")
        elif self._execute("SELECT 1 FROM sessions LIMIT 1").fetchone():
            raise SealError("this database has lost its owner")
        elif not self.handle.standing.is_good():
            # somebody of the same name may own it next, with another key
            raise SessionsError("this user was deleted or disabled")
        else:
            sealed = self.handle.seal(_OWNER_PLACE, self.handle.user.encode())
            self._execute("INSERT INTO meta (key, sealed) VALUES ('owner', ?)", (sealed,))

    # -- sessions -----------------------------------------------------------------------------------

    def ensure_session(self, session: str, title: str, now_s: int) -> SessionState:
        """The session's counters; made fresh where this user has none of that id."""
        check_session_id(session)
        place = f"sessions/{session}/meta"
        row = self._execute(
            "SELECT last_seq, last_event, sealed FROM sessions WHERE id = ?", (session,)
        ).fetchone()
        if row is not None:
            self.handle.open(place, row[2])
            return SessionState(row[0], row[1])
        sealed = self.handle.seal(place, _encode(SessionMeta(title[:TITLE_CHARS])))
        self._execute(
            "INSERT INTO sessions (id, created_s, updated_s, sealed) VALUES (?, ?, ?, ?)",
            (session, now_s, now_s, sealed),
        )
        return SessionState(0, 0)

    def list_sessions(self, limit: int = 1_000) -> list[SessionRow]:
        """This user's sessions, the latest first."""
        rows = self._execute(
            "SELECT id, created_s, updated_s, last_seq, sealed FROM sessions"
            " ORDER BY updated_s DESC, id LIMIT ?",
            (limit,),
        )
        return [
            SessionRow(i, c, u, n, _decode_meta(self.handle.open(f"sessions/{i}/meta", s)).title)
            for i, c, u, n, s in rows
        ]

    # -- messages -----------------------------------------------------------------------------------

    def append_messages(self, session: str, messages: Sequence[Message], now_s: int) -> int:
        """Add messages in order; returns the last one's seq. SessionsError: no such session."""
        seq = self.last_seq(session)
        for message in messages:
            seq += 1
            data = _encode(message)
            sealed = self.handle.seal(f"messages/{session}/{seq}", data)
            self._execute(
                "INSERT INTO messages (session, seq, bytes, sealed) VALUES (?, ?, ?, ?)",
                (session, seq, len(data), sealed),
            )
        self._execute("UPDATE sessions SET last_seq = ?, updated_s = ? WHERE id = ?", (seq, now_s, session))
        return seq

    def last_seq(self, session: str) -> int:
        """The last message's seq, 0 where there is none. SessionsError: no such session."""
        row = self._execute("SELECT last_seq FROM sessions WHERE id = ?", (session,)).fetchone()
        if row is None:
            raise SessionsError(f"no session {session!r}")
        return int(row[0])

    def read_messages(
        self, session: str, after_seq: int, up_to_seq: int, max_bytes: int, max_messages: int
    ) -> Page:
        """Messages with after_seq < seq <= up_to_seq; at least one, then up to the bounds."""
        found: list[Message] = []
        size = 0
        rows = self._execute(
            "SELECT seq, bytes, sealed FROM messages WHERE session = ? AND seq > ? AND seq <= ?"
            " ORDER BY seq LIMIT ?",
            (session, after_seq, up_to_seq, max_messages),
        )
        for seq, length, sealed in rows:
            if found and size + length > max_bytes:
                break
            found.append(_decode_message(self.handle.open(f"messages/{session}/{seq}", sealed)))
            size += length
            after_seq = seq
        return Page(tuple(found), after_seq, bool(found) and after_seq < up_to_seq)

    # -- the turn journal ---------------------------------------------------------------------------

    def begin_turn(self, turn: str, session: str, now_s: int) -> None:
        """Write down that a turn starts."""
        self._execute(
            "INSERT INTO turns (turn, session, state, started_s) VALUES (?, ?, 'started', ?)",
            (turn, session, now_s),
        )

    def end_turn(self, turn: str, outcome: TurnEnd | Failure, now_s: int) -> bool:
        """Write down how a started turn ended; False for one that has ended, which stays as it is."""
        state: TurnState = "ended"
        kept = Outcome(end=outcome) if isinstance(outcome, TurnEnd) else Outcome(failure=outcome)
        if kept.failure is not None:
            state = "cancelled" if kept.failure.code == "cancelled" else "failed"
        sealed = self.handle.seal(f"turns/{turn}/outcome", _encode(kept))
        changed = self._execute(
            "UPDATE turns SET state = ?, ended_s = ?, sealed = ? WHERE turn = ? AND state = 'started'",
            (state, now_s, sealed, turn),
        ).rowcount
        return bool(changed)

    def session_of(self, turn: str) -> str | None:
        """The session that a journalled turn is of, None where there is no such turn."""
        row = self._execute("SELECT session FROM turns WHERE turn = ?", (turn,)).fetchone()
        return None if row is None else str(row[0])

    def turn_state(self, turn: str) -> tuple[TurnState, Outcome | None]:
        """A turn's state and its outcome once it has one. SessionsError: no such turn."""
        row = self._execute("SELECT state, sealed FROM turns WHERE turn = ?", (turn,)).fetchone()
        if row is None:
            raise SessionsError(f"no turn {turn!r}")
        if row[1] is None:
            return row[0], None
        return row[0], _decode_outcome(self.handle.open(f"turns/{turn}/outcome", row[1]))

    def begin_step(self, turn: str, step: int, call: StepCall, now_s: int) -> None:
        """Write down a tool call before it acts. SessionsError: this step was begun before."""
        sealed = self.handle.seal(f"steps/{turn}/{step}", _encode(call))
        try:
            self._execute(
                "INSERT INTO steps (turn, step, state, begun_s, sealed) VALUES (?, ?, 'begun', ?, ?)",
                (turn, step, now_s, sealed),
            )
        except sqlite3.IntegrityError:
            raise SessionsError(f"step {step} was begun before") from None

    def end_step(self, turn: str, step: int, ok: bool, now_s: int) -> None:
        """Write down how a begun step ended. SessionsError: it isn't running."""
        changed = self._execute(
            "UPDATE steps SET state = ?, ended_s = ? WHERE turn = ? AND step = ? AND state = 'begun'",
            ("ok" if ok else "failed", now_s, turn, step),
        ).rowcount
        if not changed:
            raise SessionsError(f"step {step} is not running")

    def read_steps(self, turn: str) -> list[StepRow]:
        """A turn's steps in order."""
        rows = self._execute(
            "SELECT step, state, sealed, kept FROM steps WHERE turn = ? ORDER BY step", (turn,)
        )
        return [
            StepRow(n, s, _decode_step(self.handle.open(f"steps/{turn}/{n}", c)), bool(k))
            for n, s, c, k in rows
        ]
