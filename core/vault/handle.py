"""A user's handle: what code passes instead of a user id, and what opens that user's records."""

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from core.errors import SealError
from core.vault.standing import Standing

_NONCE_BYTES = 12


class UserHandle:
    """Minted by the vault alone; carries the user's data key (32 bytes), which nothing prints.

    Sealing is AES-256-GCM (NIST SP 800-38D) with a random nonce; the associated data is the user
    and the record's place, so a record moved or read under another handle does not open.
    ``standing`` says whether its user may still act.
    """

    __slots__ = ("_cipher", "_standing", "_user")

    def __init__(self, user: str, data_key: bytes, standing: Standing | None = None) -> None:
        self._standing = standing or Standing()
        self._user = user
        self._cipher = AESGCM(data_key)

    @property
    def user(self) -> str:
        """The user's id."""
        return self._user

    @property
    def standing(self) -> Standing:
        """Whether the user may still begin something."""
        return self._standing

    def seal(self, place: str, data: bytes) -> bytes:
        """Seal bytes for ``place`` (table, session and row, say): nonce and ciphertext."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, data, self._associated(place))

    def open(self, place: str, sealed: bytes) -> bytes:
        """Open what was sealed for this user and place; raises SealError otherwise."""
        nonce, body = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        try:
            return self._cipher.decrypt(nonce, body, self._associated(place))
        except (InvalidTag, ValueError):
            raise SealError(f"a record at {place} does not open with this handle") from None

    def _associated(self, place: str) -> bytes:
        return f"certosa/1\0{self._user}\0{place}".encode()

    def __repr__(self) -> str:
        return f"UserHandle({self._user!r})"

    def __reduce__(self) -> str:
        raise TypeError("a handle does not leave its process")
