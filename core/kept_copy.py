"""A database's copy from before its migration: what an operator goes back to when an upgrade went wrong.

``NAME.db`` of schema version 1 is kept as ``NAME.db.v1``, whole and flushed before the first step of
the migration runs. A migration that fails leaves both as they were.
"""

import contextlib
import os
import sqlite3
from pathlib import Path


class CopyFailed(Exception):
    """The copy could not be made or is not whole; nothing was migrated."""


def keep_copy(db: sqlite3.Connection, path: Path, version: int) -> Path:
    """Keep a copy of a database as it is now, mode 0600; replaces one of the same version.

    Args:
        db: open on ``path``, outside a transaction.
        version: the schema version that it has.

    Raises CopyFailed, most often for a full disk.
    """
    copy = path.with_name(f"{path.name}.v{version}")
    unfinished = path.with_name(f"{path.name}.v{version}.new")
    try:
        unfinished.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        os.close(os.open(unfinished, flags, 0o600))
        with contextlib.closing(sqlite3.connect(unfinished, isolation_level=None)) as target:
            db.backup(target)
            # a copy has nobody who would replay its log
            target.execute("PRAGMA journal_mode = DELETE")
            if target.execute("PRAGMA quick_check").fetchone() != ("ok",):
                raise CopyFailed(f"{copy.name}: the copy made before the migration is damaged")
        _flush(unfinished)
        unfinished.rename(copy)
        _flush(path.parent)
    except (OSError, sqlite3.Error) as error:
        raise CopyFailed(f"{copy.name}: no copy could be made before the migration: {error}") from None
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
    return copy


def forget_copies(path: Path) -> None:
    """Delete all copies of a database, half-made ones too. Raises OSError."""
    for copy in path.parent.glob(f"{path.name}.v*"):
        copy.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
