"""Tokens of users: how one is made, recognised and hashed.

``cts_``, the token's id (10 characters, 50 bits) and its secret (52 characters, 256 bits), in
lower-case base32 without padding. The id is public; the whole token is kept only as SHA-256:
with 256 random bits there is nothing to guess, so no slow hash is needed.
"""

import base64
import hashlib
import re
import secrets
from typing import NamedTuple

_ID_CHARACTERS = 10
_TOKEN = re.compile(r"cts_([a-z2-7]{10})[a-z2-7]{52}", re.ASCII)


class FreshToken(NamedTuple):
    """A token at the only moment it is whole. Its repr shows the id alone."""

    token_id: str
    token: str
    hash: bytes

    def __repr__(self) -> str:
        return f"FreshToken({self.token_id!r})"


def make_token() -> FreshToken:
    """A new token from the system's randomness."""
    token_id = _base32(secrets.token_bytes(7))[:_ID_CHARACTERS]
    token = f"cts_{token_id}{_base32(secrets.token_bytes(32))}"
    return FreshToken(token_id, token, hash_token(token))


def hash_token(token: str) -> bytes:
    """SHA-256 of a token (or of whatever was sent in its place)."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def is_token(text: str) -> bool:
    """Whether ``text`` has a token's form."""
    return _TOKEN.fullmatch(text) is not None


def _base32(data: bytes) -> str:
    return base64.b32encode(data).decode().rstrip("=").lower()
