"""AES-256-GCM (NIST SP 800-38D) under keys that never leave this process."""

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from core.errors import SealError

_NONCE_BYTES = 12


def seal(key: bytes, place: bytes, data: bytes) -> bytes:
    """Nonce (12 bytes, random) and ciphertext; ``place`` is the associated data."""
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, data, place)


def unseal(key: bytes, place: bytes, sealed: bytes) -> bytes:
    """What :func:`seal` was given with this key and place. Raises SealError otherwise."""
    try:
        return AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], place)
    except (InvalidTag, ValueError):
        raise SealError("a record of the vault does not open: it was changed, or is another's") from None
