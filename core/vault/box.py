"""Secrets sealed on their way into the vault, so that what lies between only passes them on.

X25519 (RFC 7748) with a fresh key a message, HKDF-SHA256, AES-256-GCM: the parts of HPKE (RFC 9180),
without its negotiation. It keeps values out of core's memory; it is no shield against a core that
lies about the key.
"""

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from core.vault.errors import VaultRefusal

KEY_BYTES = 32
_NONCE_BYTES = 12


def seal_to(key: bytes, name: str, value: str) -> bytes:
    """Seal a value for the credential ``name`` to a public key: our key, nonce, ciphertext.

    Raises ValueError for what is no key.
    """
    ours = X25519PrivateKey.generate()
    public = ours.public_key().public_bytes_raw()
    shared = ours.exchange(X25519PublicKey.from_public_bytes(key))
    nonce = os.urandom(_NONCE_BYTES)
    return public + nonce + AESGCM(_derive(shared, public, key)).encrypt(nonce, value.encode(), name.encode())


class Box:
    """The private end; a new key with each process."""

    def __init__(self) -> None:
        self._private = X25519PrivateKey.generate()
        self.public = self._private.public_key().public_bytes_raw()

    def open(self, name: str, sealed: bytes) -> str:
        """The value. Raises VaultRefusal where it was sealed to another key or for another name."""
        theirs, nonce = sealed[:KEY_BYTES], sealed[KEY_BYTES : KEY_BYTES + _NONCE_BYTES]
        try:
            shared = self._private.exchange(X25519PublicKey.from_public_bytes(theirs))
            key = _derive(shared, theirs, self.public)
            return AESGCM(key).decrypt(nonce, sealed[KEY_BYTES + _NONCE_BYTES :], name.encode()).decode()
        except (InvalidTag, ValueError):
            raise VaultRefusal(
                "the sealed value does not open: it was sealed for another name, or before the server was"
                " started again; ask for its key and seal it once more"
            ) from None


def _derive(shared: bytes, ours: bytes, theirs: bytes) -> bytes:
    info = b"certosa/1 credential box\0" + ours + theirs
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=info).derive(shared)
