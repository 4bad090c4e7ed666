"""The credentials' rows in ``_keys/vault.db``: sealed records, and what lists show beside them."""

import sqlite3
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_COLUMNS = "owner, name, version, sealed, created_s, used_s"


class CredentialRow(NamedTuple):
    """One row; ``owner`` is a user, or empty for the operator. Times are Unix seconds."""

    owner: str
    name: str
    version: int
    sealed: bytes
    created_s: int
    used_s: int | None


class CredentialStore:
    """The table, on the vault's own connection: one thread at a time."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def put(self, row: CredentialRow) -> None:
        """Keep a row in place of the one of that name."""
        self._db.execute(
            f"INSERT OR REPLACE INTO credentials ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)",  # noqa: S608
            row,
        )

    def remove(self, owner: str, name: str) -> bool:
        """Whether there was one. Its version is remembered, so that no later one can be taken for it."""
        row = self.get(owner, name)
        if row is None:
            return False
        self._db.execute("DELETE FROM credentials WHERE owner = ? AND name = ?", (owner, name))
        return True

    def note_version(self, owner: str, name: str, version: int) -> None:
        """Remember the last version that a record of this name has had."""
        self._db.execute(
            "INSERT OR REPLACE INTO credential_versions VALUES (?, ?, ?)", (owner, name, version)
        )

    def versions(self) -> list[tuple[str, str, int]]:
        """The last version of every name there ever was, with its owner."""
        return self._db.execute("SELECT owner, name, version FROM credential_versions").fetchall()

    def get(self, owner: str, name: str) -> CredentialRow | None:
        """One row."""
        row = self._db.execute(
            f"SELECT {_COLUMNS} FROM credentials WHERE owner = ? AND name = ?",  # noqa: S608
            (owner, name),
        ).fetchone()
        return CredentialRow(*row) if row else None

    def of(self, owner: str) -> list[CredentialRow]:
        """An owner's, by name."""
        rows = self._db.execute(
            f"SELECT {_COLUMNS} FROM credentials WHERE owner = ? ORDER BY name",  # noqa: S608
            (owner,),
        )
        return [CredentialRow(*row) for row in rows]

    def all(self) -> Iterator[CredentialRow]:
        """Everybody's; read whole first, so that they may be changed meanwhile."""
        rows = self._db.execute(f"SELECT {_COLUMNS} FROM credentials ORDER BY owner, name").fetchall()  # noqa: S608
        return (CredentialRow(*row) for row in rows)

    def count(self, owner: str) -> int:
        """How many an owner has."""
        row = self._db.execute("SELECT count(*) FROM credentials WHERE owner = ?", (owner,)).fetchone()
        return int(row[0])

    def reseal(self, owner: str, name: str, sealed: bytes) -> None:
        """Another key's record in place of the same one."""
        self._db.execute(
            "UPDATE credentials SET sealed = ? WHERE owner = ? AND name = ?", (sealed, owner, name)
        )

    def note_used(self, used: Iterable[tuple[str, str, int]]) -> None:
        """Record when credentials (owner, name) were last used."""
        self._db.executemany("UPDATE credentials SET used_s = ?3 WHERE owner = ?1 AND name = ?2", list(used))

    def forget_log(self) -> None:
        """After a change: what was there before has to be gone from the log too, sealed as it is."""
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
