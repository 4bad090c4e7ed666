"""The master key and what is derived from it."""

import hmac
import os
from pathlib import Path

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from core.vault.errors import VaultError
from core.vault.files import create_private, open_private

KEY_BYTES = 32
SALT_BYTES = 32


class MasterKey:
    """32 random bytes of which nothing is printed, pickled or compared; it only derives."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    def data_key(self, user: str, salt: bytes) -> bytes:
        """A user's data key (32 bytes): HKDF-SHA256 (RFC 5869) with the user's own salt.

        Without the salt, which the vault forgets with the user, it cannot be derived again.
        """
        return self._derive(salt, b"certosa/1 user data key\0" + user.encode())

    def wrapping_key(self, user: str, salt: bytes) -> bytes:
        """The key (32 bytes) under which a user's data key is kept in the vault."""
        return self._derive(salt, b"certosa/1 user wrapping key\0" + user.encode())

    def credential_key(self, owner: str, salt: bytes) -> bytes:
        """The key (32 bytes) of an owner's credentials; unlike the data key it never leaves the vault."""
        return self._derive(salt, b"certosa/1 credential key\0" + owner.encode())

    def register_key(self) -> bytes:
        """The key (32 bytes) of the MACs that bind the vault's rows."""
        return self._derive(None, b"certosa/1 register key\0")

    def audit_wrapping(self) -> bytes:
        """The key (32 bytes) under which the audit log's own key is kept in the vault."""
        return self._derive(None, b"certosa/1 audit wrapping key\0")

    def verifier(self) -> bytes:
        """What a vault keeps to know its master key again; tells nothing about the key."""
        return self._derive(None, b"certosa/1 master key verifier\0")

    def made(self, verifier: bytes) -> bool:
        """Whether this key made the vault that keeps ``verifier``."""
        return hmac.compare_digest(self.verifier(), verifier)

    def _derive(self, salt: bytes | None, info: bytes) -> bytes:
        return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=salt, info=info).derive(self._key)

    def __repr__(self) -> str:
        return "MasterKey()"

    def __reduce__(self) -> str:
        raise TypeError("the master key does not leave its process")


def load_master_key(path: Path, vault_exists: bool) -> MasterKey:
    """Read the master key, or make one at the very first start.

    Args:
        path: the file; 32 bytes, mode 0600, ours.
        vault_exists: whether there is a vault already. A lost key is then never replaced: a new
            one would open nothing, and the old one may still be in a backup.

    Raises VaultError, saying what is wrong with the file and what to do.
    """
    fd = open_private(path)
    if fd is None:
        if vault_exists:
            raise VaultError(
                f"{path}: is missing, and the vault beside it was made with it; restore it from a"
                " backup (without it nothing that was stored for users opens)"
            )
        create_private(path, os.urandom(KEY_BYTES))
        fd = open_private(path)
        if fd is None:
            raise VaultError(f"{path}: vanished while it was made")
    return read_key(fd, str(path))


def read_key(fd: int, where: str) -> MasterKey:
    """A master key from an open descriptor, which is closed. Raises VaultError naming ``where``."""
    try:
        with os.fdopen(fd, "rb") as file:
            if file.seekable():
                file.seek(0)
            key = file.read(KEY_BYTES + 1)
    except OSError as error:
        raise VaultError(f"{where}: cannot be read: {error.strerror}") from None
    if len(key) != KEY_BYTES:
        size = "more" if len(key) > KEY_BYTES else f"only {len(key)}"
        raise VaultError(f"{where}: has {size} bytes, a master key has {KEY_BYTES}; restore it from a backup")
    return MasterKey(key)
