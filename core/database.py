"""What our SQLite files have in common: a transaction, and the way from an older schema to ours."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from core.kept_copy import keep_copy


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All or nothing of what is changed in the block. ``db`` is in autocommit mode."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def migrate(db: sqlite3.Connection, path: Path, version: int, migrations: Sequence[str]) -> None:
    """Bring a database of schema ``version`` (0: new) to ``len(migrations)``, a step a transaction.

    Half a step cannot stay: its version is part of it. An older database is copied first.

    Raises CopyFailed, and then nothing was migrated.
    """
    if 0 < version < len(migrations):
        keep_copy(db, path, version)
    for number in range(version, len(migrations)):
        db.executescript(f"BEGIN IMMEDIATE; {migrations[number]}; PRAGMA user_version={number + 1}; COMMIT;")
