"""A user's database file: opened, brought to the newest schema, and bound to its owner's handle."""

import os
import sqlite3
import stat
from pathlib import Path

from core.database import migrate
from core.kept_copy import CopyFailed
from core.sessions.approvals import APPROVALS_TABLE
from core.sessions.errors import StorageError
from core.sessions.store import UserStore
from core.vault.handle import UserHandle

_BUSY_TIMEOUT_S = 5.0
# many small databases are open at once; SQLite's default would be 2 MB of pages for each
_CACHE_KIB = 256

_FIRST = """
CREATE TABLE meta (key TEXT PRIMARY KEY, sealed BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    created_s INTEGER NOT NULL,
    updated_s INTEGER NOT NULL,
    last_seq INTEGER NOT NULL DEFAULT 0,      -- counters: of messages,
    last_event INTEGER NOT NULL DEFAULT 0,    -- of events, which outlive the trimmed rows,
    event_bytes INTEGER NOT NULL DEFAULT 0,   -- and the size of the rows that are left
    sealed BLOB NOT NULL                      -- SessionMeta
) STRICT, WITHOUT ROWID;
CREATE TABLE messages (
    session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    sealed BLOB NOT NULL,
    PRIMARY KEY (session, seq)
) STRICT, WITHOUT ROWID;
CREATE TABLE turns (
    turn TEXT PRIMARY KEY,
    session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    state TEXT NOT NULL CHECK (state IN ('started', 'ended', 'failed', 'cancelled')),
    started_s INTEGER NOT NULL,
    ended_s INTEGER,
    sealed BLOB                               -- Outcome, once there is one
) STRICT, WITHOUT ROWID;
CREATE INDEX turns_by_session ON turns (session, started_s);
CREATE INDEX turns_open ON turns (state) WHERE state = 'started';
CREATE TABLE events (
    session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    id INTEGER NOT NULL,
    turn TEXT NOT NULL,
    created_s INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    sealed BLOB NOT NULL,
    PRIMARY KEY (session, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE steps (
    turn TEXT NOT NULL REFERENCES turns (turn) ON DELETE CASCADE,
    step INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('begun', 'ok', 'failed')),
    begun_s INTEGER NOT NULL,
    ended_s INTEGER,
    sealed BLOB NOT NULL,                     -- StepCall
    PRIMARY KEY (turn, step)
) STRICT, WITHOUT ROWID;
"""

_RECOVERY = """
ALTER TABLE turns ADD COLUMN asked BLOB;                        -- Asked, sealed, where it may be started anew
ALTER TABLE turns ADD COLUMN resumes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE steps ADD COLUMN kept INTEGER NOT NULL DEFAULT 0;   -- 1: its result is among the messages
"""

MIGRATIONS = (_FIRST, APPROVALS_TABLE, _RECOVERY)
"""What leads from schema version N to N + 1; never changed once released."""


class Database:
    """One open file; used by one thread. Raises StorageError where it can't be opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        new = _make_file(path)
        self.connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None)
        self._bound: UserStore | None = None
        try:
            self._prepare(new)
        except BaseException:
            self.connection.close()
            raise

    def bind(self, handle: UserHandle) -> UserStore:
        """The records as ``handle`` opens them; SealError when the file is another user's."""
        if self._bound is None or self._bound.handle is not handle:
            self._bound = UserStore(self.connection, handle)
        return self._bound

    def close(self) -> None:
        """Close the file; what was committed stays."""
        self._bound = None
        self.connection.close()

    def _prepare(self, new: bool) -> None:
        execute = self.connection.execute
        execute("PRAGMA journal_mode=WAL")
        execute("PRAGMA foreign_keys=ON")
        execute("PRAGMA trusted_schema=OFF")
        execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
        execute("PRAGMA synchronous=FULL")
        (version,) = execute("PRAGMA user_version").fetchone()
        if version > len(MIGRATIONS):
            raise StorageError(
                "unavailable",
                f"{self.path.name} has schema version {version}, this Certosa knows"
                f" {len(MIGRATIONS)}: run the newer Certosa that wrote it",
            )
        if version == 0 and not new and execute("SELECT 1 FROM sqlite_master").fetchone():
            raise StorageError("unavailable", f"{self.path.name} is not a database of Certosa's")
        try:
            migrate(self.connection, self.path, version, MIGRATIONS)
        except CopyFailed as error:
            raise StorageError("unavailable", f"{self.path.name} is not migrated: {error}") from None


def _make_file(path: Path) -> bool:
    """Create the file with mode 0600 and say whether it is new; refuse what isn't a plain file."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(path, flags, 0o600)
    except OSError as error:
        raise StorageError("unavailable", f"{path.name} cannot be opened: {error.strerror}") from None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise StorageError("unavailable", f"{path.name} is not a regular file")
        if found.st_mode & 0o077:
            raise StorageError("unavailable", f"{path.name} may be read by others: chmod 600 it")
        return found.st_size == 0
    finally:
        os.close(fd)
