"""The key of the audit log: random, made once, kept in the vault's database wrapped by the master key.

So rotating the master key wraps it anew and leaves the log as it is.
"""

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from core.vault.errors import VaultError

KEY_BYTES = 32
_NONCE_BYTES = 12
_PLACE = b"certosa/1 audit key\0"


def make_key() -> bytes:
    """A new one."""
    return os.urandom(KEY_BYTES)


def wrap_key(wrapping: bytes, key: bytes) -> bytes:
    """Wrapped, for the database; ``wrapping`` is core.vault.keys.MasterKey.audit_wrapping's."""
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(wrapping).encrypt(nonce, key, _PLACE)


def unwrap_key(wrapping: bytes, wrapped: bytes) -> bytes:
    """The key again. Raises VaultError where another master key wrapped it or it was changed."""
    try:
        return AESGCM(wrapping).decrypt(wrapped[:_NONCE_BYTES], wrapped[_NONCE_BYTES:], _PLACE)
    except (InvalidTag, ValueError):
        raise VaultError(
            "the audit log's key in vault.db does not open with this master key; put back both of one backup"
        ) from None


def rewrap_key(old: bytes, new: bytes, wrapped: bytes) -> bytes:
    """Wrapped anew, when the master key changes. Raises VaultError as :func:`unwrap_key`."""
    return wrap_key(new, unwrap_key(old, wrapped))
