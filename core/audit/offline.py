"""The audit log without a server: of a copy, or of one that is stopped. Nothing of it is changed.

The log's key stands in the vault's database, wrapped by the master key: both are needed, or the key by
itself, as ``certosa audit key`` writes it. Whoever has it can check the log, and could forge one.
"""

import os
import shutil
import sqlite3
import stat
import tempfile
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from core.audit.chain import Chain
from core.audit.key import KEY_BYTES, unwrap_key
from core.audit.verify import Verdict, verify, verify_file
from core.opening import open_to_judge
from core.vault.errors import VaultError
from core.vault.keys import MasterKey, read_key

_MAX_FILE_BYTES = 1 << 30
_MAX_VAULT_BYTES = 1 << 30


class Copy(NamedTuple):
    """Where a copy of the log lies: its directory, or one file of it; and the vault's directory, if known."""

    log: Path
    keys: Path | None


def find_copy(path: Path) -> Copy:
    """A log in a data directory, in ``_keys``, by itself, or one file of it. Raises VaultError."""
    if path.is_file():
        return Copy(path, None)
    for log in (path / "_keys" / "audit", path / "audit", path):
        if (log / "anchor").exists() or any(log.glob("audit-*.jsonl")):
            return Copy(log, log.parent)
    raise VaultError(f"{path}: there is no audit log in it (audit-NNNNNNNN.jsonl and anchor)")


def check_copy(copy: Copy, key: bytes) -> Verdict:
    """Check it, whoever its files belong to. Raises OSError, VaultError."""
    check = verify_file if copy.log.is_file() else verify
    return check(copy.log, Chain(key), _read)


def read_audit_key(path: Path) -> bytes:
    """The key by itself, as hexadecimal. Raises VaultError."""
    text = _read(path)
    try:
        key = bytes.fromhex((text or b"").decode().strip())
    except (ValueError, UnicodeDecodeError):
        key = b""
    if len(key) != KEY_BYTES:
        raise VaultError(f"{path}: is not an audit log's key ({2 * KEY_BYTES} hexadecimal digits)")
    return key


def audit_key_of(vault: Path, master_key: Path) -> bytes:
    """The log's key out of a vault's database. Raises VaultError where the two do not belong together."""
    master = _master_key(master_key)
    with tempfile.TemporaryDirectory(prefix="certosa-audit-") as directory:
        # opening a database may write beside it, and evidence stays as it is
        for suffix in ("", "-wal"):
            source = vault.with_name(vault.name + suffix)
            if source.exists():
                if source.stat().st_size > _MAX_VAULT_BYTES:
                    raise VaultError(f"{source}: is too long for a vault")
                shutil.copyfile(source, Path(directory) / f"vault.db{suffix}")
            elif not suffix:
                raise VaultError(f"{vault}: is missing; it has the audit log's key: name it with --vault")
        found = _values(Path(directory) / "vault.db", vault)
    if "verifier" not in found or not master.made(found["verifier"]):
        raise VaultError(f"{master_key}: did not make {vault}; take both of the same time")
    if "audit_key" not in found:
        raise VaultError(f"{vault}: has no audit log's key")
    return unwrap_key(master.audit_wrapping(), found["audit_key"])


def _values(copy: Path, vault: Path) -> dict[str, bytes]:
    try:
        with closing(sqlite3.connect(copy)) as db:
            rows = db.execute("SELECT key, value FROM meta WHERE key IN ('verifier', 'audit_key')").fetchall()
    except sqlite3.Error as error:
        raise VaultError(f"{vault}: is not a vault, or is damaged: {error}") from None
    return {str(key): bytes(value) for key, value in rows}


def _master_key(path: Path) -> MasterKey:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise VaultError(
            f"{path}: cannot be opened: {error.strerror}; name the master key with --master-key"
        ) from None
    return read_key(fd, str(path))


def _read(path: Path) -> bytes | None:
    """A regular file, whoever it belongs to; None where there is none."""
    if (fd := open_to_judge(path, VaultError)) is None:
        return None
    with os.fdopen(fd, "rb") as file:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode) or info.st_size > _MAX_FILE_BYTES:
            raise VaultError(f"{path}: is not a file of an audit log")
        return file.read()
