"""Who the users are: names, host uids, disabled or not; DATA/_system/core.db.

A host uid is never used twice, not even after its user was deleted: a file or process left over
from the first must never belong to a second.
"""

import contextlib
import grp
import os
import pwd
import re
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from core.database import migrate, transaction
from core.errors import CoreError
from core.kept_copy import CopyFailed

_USER_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
_FIRST_USER = 1_000  # past uid_base: below are core, egress and what may join them
_MAX_UID = 2**31 - 2

_FIRST = """
CREATE TABLE users (
    name TEXT PRIMARY KEY,
    host_uid INTEGER NOT NULL UNIQUE,
    created_s INTEGER NOT NULL,
    disabled INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE TABLE retired_uids (host_uid INTEGER PRIMARY KEY, retired_s INTEGER NOT NULL) STRICT;
"""
MIGRATIONS = (_FIRST,)


class UsersError(CoreError):
    """The users' table cannot do what was asked; the message says what to do."""


class UserNameError(UsersError):
    """Not a user id."""


class UserExists(UsersError):
    """There is a user of this name."""


class NoSuchUser(UsersError):
    """There is no user of this name."""


class User(NamedTuple):
    """A user; ``host_uid`` is theirs for good, ``created_s`` is Unix time."""

    name: str
    host_uid: int
    created_s: int
    disabled: bool


def check_user_id(name: str) -> str:
    """Return a user id, or raise UserNameError saying what one looks like.

    There is nothing to fold: capitals, look-alikes, combining marks and names of the system's own
    (``_system``, ``.``, ``..``) are outside the pattern.
    """
    if not _USER_ID.fullmatch(name):
        raise UserNameError(
            "a user id is 1 to 32 characters: small letters a-z, digits, dash or underscore,"
            " and begins with a letter or a digit"
        )
    return name


class Users:
    """The table. Methods may be called by any thread and wait for the disk.

    Args:
        path: the database file; made with mode 0600 if missing.
        uid_base: the first host uid of ours; users get theirs from ``uid_base + 1000`` on.

    Raises UsersError where the file is damaged or newer than this code.
    """

    def __init__(self, path: Path, uid_base: int) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        self._first_uid = uid_base + _FIRST_USER
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, timeout=5.0, isolation_level=None, check_same_thread=False)
        try:
            self._prepare(path)
        except sqlite3.Error as error:
            self._db.close()
            raise UsersError(f"{path}: {error}; restore it from a backup") from None
        except BaseException:
            self._db.close()
            raise

    def _prepare(self, path: Path) -> None:
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version > len(MIGRATIONS):
            raise UsersError(
                f"{path} has schema version {version}, this Certosa knows {len(MIGRATIONS)}:"
                " run the newer Certosa that wrote it"
            )
        try:
            migrate(self._db, path, version, MIGRATIONS)
        except CopyFailed as error:
            raise UsersError(f"{path}: is not migrated: {error}") from None

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    def add(self, name: str) -> User:
        """Add a user with a host uid that nobody ever had. UserNameError, UserExists."""
        check_user_id(name)
        with self._transaction() as db:
            if db.execute("SELECT 1 FROM users WHERE name = ?", (name,)).fetchone():
                raise UserExists(f"there is a user {name} already")
            user = User(name, self._free_uid(db), int(time.time()), False)
            db.execute("INSERT INTO users VALUES (?, ?, ?, ?)", user)
        return user

    def get(self, name: str) -> User:
        """One user; NoSuchUser."""
        with self._transaction() as db:
            row = db.execute(
                "SELECT name, host_uid, created_s, disabled FROM users WHERE name = ?", (name,)
            ).fetchone()
        if row is None:
            raise NoSuchUser(f"there is no user {name!r}")
        return User(row[0], row[1], row[2], bool(row[3]))

    def list(self) -> list[User]:
        """All users by name."""
        with self._transaction() as db:
            rows = db.execute("SELECT name, host_uid, created_s, disabled FROM users ORDER BY name")
            return [User(n, u, c, bool(d)) for n, u, c, d in rows]

    def set_disabled(self, name: str, disabled: bool) -> None:
        """Disable or enable a user; NoSuchUser."""
        with self._transaction() as db:
            found = db.execute("UPDATE users SET disabled = ? WHERE name = ?", (disabled, name)).rowcount
        if not found:
            raise NoSuchUser(f"there is no user {name!r}")

    def delete(self, name: str) -> User:
        """Forget a user and retire the host uid; returns who it was. NoSuchUser."""
        user = self.get(name)
        with self._transaction() as db:
            db.execute("DELETE FROM users WHERE name = ?", (name,))
            db.execute("INSERT OR IGNORE INTO retired_uids VALUES (?, ?)", (user.host_uid, int(time.time())))
        return user

    def _free_uid(self, db: sqlite3.Connection) -> int:
        (last,) = db.execute(
            "SELECT max(host_uid) FROM"
            " (SELECT host_uid FROM users UNION ALL SELECT host_uid FROM retired_uids)"
        ).fetchone()
        uid = max(self._first_uid, (last or 0) + 1)
        while is_taken(uid):
            uid += 1
        if uid > _MAX_UID:
            raise UsersError("no host uid is left: choose a lower jail.uid_base")
        return uid

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                with transaction(self._db):
                    yield self._db
            except sqlite3.Error as error:
                raise UsersError(f"the users' database failed: {error}") from None


def is_taken(uid: int) -> bool:
    """Whether the host knows this number as a user or a group."""
    with contextlib.suppress(KeyError):
        pwd.getpwuid(uid)
        return True
    with contextlib.suppress(KeyError):
        grp.getgrgid(uid)
        return True
    return False
