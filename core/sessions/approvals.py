"""Questions to a person, as they are kept: one row each, until a while after they were decided.

Runs inside a transaction of the caller's, like the store.
"""

from typing import NamedTuple

import msgspec

from actors.asking import ApprovalResolved, ApprovalWanted, Resolution
from core.sessions.store import UserStore

_KEPT_S = 7 * 86_400
"""A decided question is remembered so long, so that a late answer learns what came of it."""
_MAX_LISTED = 1_000

APPROVALS_TABLE = """
CREATE TABLE approvals (
    id TEXT PRIMARY KEY,
    turn TEXT NOT NULL,
    session TEXT REFERENCES sessions (id) ON DELETE CASCADE,  -- NULL: a turn whose session is kept for nobody
    outcome TEXT CHECK (outcome IN ('allowed', 'refused', 'expired', 'ended')),  -- NULL: open
    created_s INTEGER NOT NULL,
    decided_s INTEGER,
    sealed BLOB NOT NULL                      -- ApprovalWanted
) STRICT, WITHOUT ROWID;
CREATE INDEX approvals_open ON approvals (created_s) WHERE outcome IS NULL;
CREATE INDEX approvals_by_session ON approvals (session) WHERE session IS NOT NULL;
"""


class ApprovalRow(NamedTuple):
    """A question; ``session`` is "" where the turn's is kept for nobody, ``outcome`` None while open."""

    turn: str
    session: str
    outcome: Resolution | None
    created_s: int
    wanted: ApprovalWanted


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ApprovalWanted).decode
_Row = tuple[str, str, str | None, Resolution | None, int, bytes]


class ApprovalRecords:
    """The questions of one store. Raises SealError, sqlite3.Error."""

    def __init__(self, store: UserStore) -> None:
        self._handle = store.handle
        self._store = store
        self._execute = store.connection.execute

    def add(self, turn: str, session: str | None, wanted: ApprovalWanted, now_s: int) -> None:
        """Keep a question, and forget those that were decided long ago."""
        self._execute("DELETE FROM approvals WHERE outcome IS NOT NULL AND decided_s < ?", (now_s - _KEPT_S,))
        sealed = self._handle.seal(_place(wanted.approval), _encode(wanted))
        self._execute(
            "INSERT INTO approvals (id, turn, session, created_s, sealed) VALUES (?, ?, ?, ?, ?)",
            (wanted.approval, turn, session, now_s, sealed),
        )

    def settle(self, approval: str, outcome: Resolution, now_s: int) -> bool:
        """Decide an open question; False for one that is decided or not there."""
        return bool(
            self._execute(
                "UPDATE approvals SET outcome = ?, decided_s = ? WHERE id = ? AND outcome IS NULL",
                (outcome, now_s, approval),
            ).rowcount
        )

    def find(self, approval: str) -> ApprovalRow | None:
        """A question, decided or not; None where this user has none of that id."""
        row = self._execute(
            "SELECT id, turn, session, outcome, created_s, sealed FROM approvals WHERE id = ?", (approval,)
        ).fetchone()
        return None if row is None else self._row(row)

    def open(self) -> list[ApprovalRow]:
        """Those that wait for an answer, oldest first."""
        rows = self._execute(
            "SELECT id, turn, session, outcome, created_s, sealed FROM approvals WHERE outcome IS NULL"
            " ORDER BY created_s, id LIMIT ?",
            (_MAX_LISTED,),
        )
        return [self._row(row) for row in rows]

    def interrupt(self, now_s: int) -> dict[str, list[ApprovalResolved]]:
        """Core is another one: whoever asked is gone. By turn, what its log is to say of that."""
        rows = self._execute("SELECT id, turn FROM approvals WHERE outcome IS NULL").fetchall()
        found: dict[str, list[ApprovalResolved]] = {}
        for approval, turn in rows:
            self.settle(approval, "ended", now_s)
            found.setdefault(turn, []).append(ApprovalResolved(approval, "ended"))
        return found

    def _row(self, row: _Row) -> ApprovalRow:
        approval, turn, session, outcome, created_s, sealed = row
        wanted = _decode(self._handle.open(_place(approval), sealed))
        return ApprovalRow(turn, session or "", outcome, created_s, wanted)


def _place(approval: str) -> str:
    return f"approvals/{approval}"
