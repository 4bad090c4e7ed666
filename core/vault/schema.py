"""The vault's tables and their versions: migrated forward in one transaction, never backward."""

import sqlite3
from pathlib import Path

from core.database import transaction
from core.kept_copy import CopyFailed, keep_copy
from core.vault.errors import VaultError

_VERSION_1 = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT",
    """CREATE TABLE users (
        user TEXT PRIMARY KEY,
        salt BLOB NOT NULL CHECK (length(salt) = 32),
        disabled INTEGER NOT NULL DEFAULT 0 CHECK (disabled IN (0, 1)),
        created_s INTEGER NOT NULL
    ) STRICT""",
    """CREATE TABLE tokens (
        token_id TEXT PRIMARY KEY,
        user TEXT NOT NULL REFERENCES users (user) ON DELETE CASCADE,
        hash BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
        label TEXT NOT NULL,
        created_s INTEGER NOT NULL,
        last_used_s INTEGER,
        revoked_s INTEGER
    ) STRICT""",
    "CREATE INDEX tokens_by_user ON tokens (user)",
)
_VERSION_2 = (
    """CREATE TABLE admin_tokens (
        token_id TEXT PRIMARY KEY,
        hash BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
        label TEXT NOT NULL,
        created_s INTEGER NOT NULL,
        last_used_s INTEGER,
        revoked_s INTEGER
    ) STRICT""",
)
_VERSION_3 = (
    # NULL until the vault is opened next: a key of version 1 was derived from the master key
    "ALTER TABLE users ADD COLUMN data_key BLOB",
    """CREATE TABLE credentials (
        owner TEXT NOT NULL,
        name TEXT NOT NULL,
        version INTEGER NOT NULL,
        sealed BLOB NOT NULL,
        created_s INTEGER NOT NULL,
        used_s INTEGER,
        PRIMARY KEY (owner, name)
    ) STRICT""",
    """CREATE TABLE credential_versions (
        owner TEXT NOT NULL,
        name TEXT NOT NULL,
        version INTEGER NOT NULL,
        PRIMARY KEY (owner, name)
    ) STRICT""",
)
_VERSION_4 = (
    """CREATE TABLE egress_rules (
        user TEXT NOT NULL REFERENCES users (user) ON DELETE CASCADE,
        rule_id TEXT NOT NULL,
        rule TEXT NOT NULL,
        created_s INTEGER NOT NULL,
        PRIMARY KEY (user, rule_id)
    ) STRICT""",
)
_VERSION_5 = (
    # NULL until the vault is opened next, and when a token is revoked
    "ALTER TABLE tokens ADD COLUMN mac BLOB",
    "ALTER TABLE admin_tokens ADD COLUMN mac BLOB",
)
# the register counts rules from here on, which an older Certosa would take for damage
_VERSION_6: tuple[str, ...] = ()
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    _VERSION_1, _VERSION_2, _VERSION_3, _VERSION_4, _VERSION_5, _VERSION_6,
)  # fmt: skip
"""``MIGRATIONS[n]`` leads from version n to n + 1. Only ever appended to."""


def migrate(db: sqlite3.Connection, path: Path) -> None:
    """Bring the database to the newest version, with a copy of an older one kept beside it.

    Args:
        db: in autocommit mode, on ``path``; nobody else has it open.

    Raises VaultError for one newer than we know, and where the copy cannot be made.
    """
    version = _version(db)
    if version > len(MIGRATIONS):
        raise VaultError(
            f"{path}: has schema version {version}, this Certosa knows {len(MIGRATIONS)};"
            " start the newer Certosa that made it, or restore a backup"
        )
    if version == len(MIGRATIONS):
        return
    if version:
        try:
            keep_copy(db, path, version)
        except CopyFailed as error:
            raise VaultError(f"{path}: is not migrated: {error}") from None
    with transaction(db):
        db.execute("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL) STRICT")
        for steps in MIGRATIONS[version:]:
            for statement in steps:
                db.execute(statement)
        db.execute("DELETE FROM schema_version")
        db.execute("INSERT INTO schema_version VALUES (?)", (len(MIGRATIONS),))


def _version(db: sqlite3.Connection) -> int:
    """0 for a new file."""
    if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'schema_version'").fetchone():
        return 0
    (version,) = db.execute("SELECT max(version) FROM schema_version").fetchone()
    return int(version or 0)
