"""``_keys/vault.db``: users' wrapped keys, hashes of tokens, credentials. No secret is here in the clear."""

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from core.database import transaction
from core.kept_copy import forget_copies
from core.vault.credential_store import CredentialStore
from core.vault.errors import VaultError
from core.vault.files import create_private, open_private
from core.vault.rule_store import RuleStore
from core.vault.schema import migrate
from core.vault.tokens import Kind, TokenBound

_TOKENS: dict[Kind, str] = {"user": "tokens", "admin": "admin_tokens"}
_BUSY_S = 5.0


class TokenRow(NamedTuple):
    """A token that is not revoked, as lists show it; times are Unix seconds."""

    token_id: str
    user: str
    label: str
    created_s: int
    last_used_s: int | None


class Claim(NamedTuple):
    """What the vault knows of a token's hash."""

    token_id: str
    user: str
    hash: bytes
    salt: bytes
    data_key: bytes  # wrapped
    valid: bool  # neither revoked nor its user disabled
    mac: bytes | None

    @property
    def bound(self) -> TokenBound:
        """What the MAC is over."""
        return TokenBound("user", self.token_id, self.user, self.hash)


class VaultStore:
    """The database. One thread at a time; every change is durable when its method returns.

    Raises sqlite3.Error where the disk fails, VaultError at opening.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        _prepare_file(path)
        self._db = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute("PRAGMA foreign_keys = ON")
            # a removed user's salt has to be gone from the file, not only from the tables
            self._db.execute("PRAGMA secure_delete = ON")
            if self._db.execute("PRAGMA quick_check").fetchone() != ("ok",):
                raise VaultError(f"{path}: is damaged; restore it from a backup")
            migrate(self._db, path)
            # where a removal was cut short by a crash, the log still has what it forgot
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:
            self._db.close()
            raise VaultError(f"{path}: {error}; restore it from a backup") from None
        except VaultError:
            self._db.close()
            raise
        self.credentials = CredentialStore(self._db)
        self.rules = RuleStore(self._db)

    def close(self) -> None:
        """Close the database; harmless twice."""
        self._db.close()

    def verifier(self) -> bytes | None:
        """What was kept to know the master key again."""
        row = self._db.execute("SELECT value FROM meta WHERE key = 'verifier'").fetchone()
        return row[0] if row else None

    def set_verifier(self, verifier: bytes) -> None:
        """Keep it, once and for all."""
        self._db.execute("INSERT OR REPLACE INTO meta VALUES ('verifier', ?)", (verifier,))

    def operator_salt(self, fresh: bytes) -> bytes:
        """The salt of the operator's own credentials; ``fresh`` becomes it the first time."""
        self._db.execute("INSERT INTO meta VALUES ('operator_salt', ?) ON CONFLICT DO NOTHING", (fresh,))
        row = self._db.execute("SELECT value FROM meta WHERE key = 'operator_salt'").fetchone()
        return bytes(row[0])

    def audit_key(self) -> bytes | None:
        """The audit log's key, wrapped."""
        row = self._db.execute("SELECT value FROM meta WHERE key = 'audit_key'").fetchone()
        return bytes(row[0]) if row else None

    def set_audit_key(self, wrapped: bytes) -> None:
        """Keep it, in place of what was there."""
        self._db.execute("INSERT OR REPLACE INTO meta VALUES ('audit_key', ?)", (wrapped,))

    def add_user(self, user: str, salt: bytes, data_key: bytes, now_s: int) -> None:
        """Make a user with a wrapped data key; nothing changes where there is one."""
        self._db.execute(
            "INSERT INTO users (user, salt, data_key, created_s) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (user, salt, data_key, now_s),
        )

    def salt(self, user: str) -> bytes | None:
        """A user's salt."""
        row = self._db.execute("SELECT salt FROM users WHERE user = ?", (user,)).fetchone()
        return bytes(row[0]) if row else None

    def user_keys(self) -> list[tuple[str, bytes, bytes | None]]:
        """Every user's id, salt and wrapped data key; None for one from before there were such."""
        return self._db.execute("SELECT user, salt, data_key FROM users ORDER BY user").fetchall()

    def set_user_key(self, user: str, data_key: bytes) -> None:
        """Keep a wrapped data key in place of what was there."""
        self._db.execute("UPDATE users SET data_key = ? WHERE user = ?", (data_key, user))

    def forget_copies(self) -> None:
        """Delete the copies of older versions. Raises OSError."""
        forget_copies(self._path)

    def forget_log(self) -> None:
        """Empty the write-ahead log: what was replaced is gone from the files."""
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def remove_user(self, user: str) -> None:
        """Forget a user, salt, tokens and credentials; the log and the copies of old versions come after."""
        self._db.execute("DELETE FROM users WHERE user = ?", (user,))
        self._db.execute("DELETE FROM credentials WHERE owner = ?", (user,))
        self._db.execute("DELETE FROM credential_versions WHERE owner = ?", (user,))

    def register(self) -> bytes | None:
        """The MAC over what rows there are; None in a vault from before there was one."""
        row = self._db.execute("SELECT value FROM meta WHERE key = 'register'").fetchone()
        return bytes(row[0]) if row else None

    def set_register(self, mac: bytes) -> None:
        """Keep it, in place of what was there."""
        self._db.execute("INSERT OR REPLACE INTO meta VALUES ('register', ?)", (mac,))

    def live_tokens(self) -> list[TokenBound]:
        """Everybody's tokens that are not revoked, of both kinds."""
        rows = self._db.execute(
            "SELECT 'user', token_id, user, hash FROM tokens WHERE revoked_s IS NULL UNION ALL"
            " SELECT 'admin', token_id, '', hash FROM admin_tokens WHERE revoked_s IS NULL"
        )
        return [TokenBound(*row) for row in rows]

    def disabled_users(self) -> list[str]:
        """The users who are disabled."""
        return [row[0] for row in self._db.execute("SELECT user FROM users WHERE disabled")]

    def set_token_mac(self, kind: Kind, token_id: str, mac: bytes) -> None:
        """Bind a token's row."""
        self._db.execute(f"UPDATE {_TOKENS[kind]} SET mac = ? WHERE token_id = ?", (mac, token_id))  # noqa: S608

    def has_user(self, user: str) -> bool:
        """Whether there is such a user."""
        return self._db.execute("SELECT 1 FROM users WHERE user = ?", (user,)).fetchone() is not None

    def set_disabled(self, user: str, disabled: bool) -> bool:
        """Returns whether there is such a user."""
        done = self._db.execute("UPDATE users SET disabled = ? WHERE user = ?", (disabled, user))
        return done.rowcount == 1

    def count_tokens(self, user: str) -> int:
        """Tokens of a user that are not revoked."""
        row = self._db.execute(
            "SELECT count(*) FROM tokens WHERE user = ? AND revoked_s IS NULL", (user,)
        ).fetchone()
        return int(row[0])

    def add_token(self, token: TokenBound, mac: bytes, label: str, now_s: int) -> None:
        """Keep a token's hash; sqlite3.IntegrityError where the user is none."""
        if token.kind == "admin":
            self._db.execute(
                "INSERT INTO admin_tokens (token_id, hash, label, created_s, mac) VALUES (?, ?, ?, ?, ?)",
                (token.token_id, token.hash, label, now_s, mac),
            )
        else:
            self._db.execute(
                "INSERT INTO tokens (token_id, user, hash, label, created_s, mac) VALUES (?, ?, ?, ?, ?, ?)",
                (token.token_id, token.user, token.hash, label, now_s, mac),
            )

    def revoke_token(self, token_id: str, now_s: int) -> bool:
        """Returns whether there was such a token, a user's or an administrator's, not revoked yet."""
        done = [
            self._db.execute(
                f"UPDATE {table} SET revoked_s = ?, mac = NULL WHERE token_id = ? AND revoked_s IS NULL",  # noqa: S608
                (now_s, token_id),
            ).rowcount
            for table in _TOKENS.values()
        ]
        return any(done)

    def admin_tokens(self) -> list[TokenRow]:
        """Administrators' tokens that are not revoked; their ``user`` is empty."""
        rows = self._db.execute(
            "SELECT token_id, '', label, created_s, last_used_s FROM admin_tokens"
            " WHERE revoked_s IS NULL ORDER BY created_s, token_id"
        )
        return [TokenRow(*row) for row in rows]

    def ever_had_admin_token(self) -> bool:
        """Whether there ever was one, revoked or not."""
        return self._db.execute("SELECT 1 FROM admin_tokens LIMIT 1").fetchone() is not None

    def admin_claim(self, hash_: bytes) -> tuple[TokenBound, bytes | None] | None:
        """An administrator's token that is not revoked, and its row's MAC."""
        row = self._db.execute(
            "SELECT token_id, hash, mac FROM admin_tokens WHERE hash = ? AND revoked_s IS NULL", (hash_,)
        ).fetchone()
        return (TokenBound("admin", row[0], "", row[1]), row[2]) if row else None

    def tokens(self, user: str, limit: int) -> list[TokenRow]:
        """At most ``limit`` tokens that are not revoked; of everybody where ``user`` is empty."""
        rows = self._db.execute(
            "SELECT token_id, user, label, created_s, last_used_s FROM tokens"
            " WHERE revoked_s IS NULL AND (?1 = '' OR user = ?1) ORDER BY user, created_s, token_id"
            " LIMIT ?2",
            (user, limit),
        )
        return [TokenRow(*row) for row in rows]

    def claim(self, hash_: bytes) -> Claim | None:
        """What belongs to a token's hash."""
        row = self._db.execute(
            "SELECT token_id, user, hash, salt, data_key, disabled = 0 AND revoked_s IS NULL, mac"
            " FROM tokens JOIN users USING (user) WHERE hash = ?",
            (hash_,),
        ).fetchone()
        return Claim(row[0], row[1], row[2], row[3], row[4], bool(row[5]), row[6]) if row else None

    def note_used(self, used: Iterable[tuple[str, int]]) -> None:
        """Record when tokens (by id) were last used, in one transaction."""
        rows = list(used)
        with self.transaction():
            self._db.executemany("UPDATE tokens SET last_used_s = ?2 WHERE token_id = ?1", rows)
            self._db.executemany("UPDATE admin_tokens SET last_used_s = ?2 WHERE token_id = ?1", rows)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing of what is changed in the block."""
        with transaction(self._db):
            yield


def _prepare_file(path: Path) -> None:
    """Make the file ourselves, so that its mode is ours and SQLite gives its log the same."""
    fd = open_private(path)
    if fd is None:
        create_private(path, b"")
    else:
        os.close(fd)
