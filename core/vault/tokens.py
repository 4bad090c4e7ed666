"""Tokens: how one is made, recognised and hashed.

``cts_`` for a user's or ``cta_`` for an administrator's, the token's id (10 characters, 50 bits) and
its secret (52 characters, 256 bits), in lower-case base32 without padding. The id is public; the whole
token is kept only as SHA-256: with 256 random bits there is nothing to guess, so no slow hash is needed.
"""

import base64
import hashlib
import hmac
import re
import secrets
from typing import Literal, NamedTuple

_ID_CHARACTERS = 10
_TOKEN = re.compile(r"(cts|cta)_([a-z2-7]{10})[a-z2-7]{52}", re.ASCII)

Kind = Literal["user", "admin"]
KINDS: tuple[Kind, ...] = ("user", "admin")
_PREFIXES: dict[Kind, str] = {"user": "cts", "admin": "cta"}


class FreshToken(NamedTuple):
    """A token at the only moment it is whole. Its repr shows the id alone."""

    token_id: str
    token: str
    hash: bytes

    def __repr__(self) -> str:
        return f"FreshToken({self.token_id!r})"


class TokenBound(NamedTuple):
    """What a row of a token binds together; ``user`` is empty for an administrator's."""

    kind: Kind
    token_id: str
    user: str
    hash: bytes

    @property
    def at(self) -> str:
        """Where the register has it."""
        return token_at(self.kind, self.token_id)

    def mac(self, key: bytes) -> bytes:
        """HMAC-SHA256 over all of it."""
        parts = (b"certosa/1 token", self.kind.encode(), self.token_id.encode(), self.user.encode())
        return hmac.digest(key, b"\0".join((*parts, self.hash)), hashlib.sha256)


def token_at(kind: Kind, token_id: str) -> str:
    """Where the register has a token."""
    return f"{kind}\0{token_id}"


def make_token(kind: Kind = "user") -> FreshToken:
    """A new token from the system's randomness."""
    token_id = _base32(secrets.token_bytes(7))[:_ID_CHARACTERS]
    token = f"{_PREFIXES[kind]}_{token_id}{_base32(secrets.token_bytes(32))}"
    return FreshToken(token_id, token, hash_token(token))


def hash_token(token: str) -> bytes:
    """SHA-256 of a token (or of whatever was sent in its place)."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def is_token(text: str, kind: Kind = "user") -> bool:
    """Whether ``text`` has the form of such a token."""
    found = _TOKEN.fullmatch(text)
    return found is not None and found[1] == _PREFIXES[kind]


def public_id(text: str) -> str | None:
    """The id in what has a token's form, of either kind; None for anything else. No secret."""
    found = _TOKEN.fullmatch(text)
    return found[2] if found else None


def _base32(data: bytes) -> str:
    return base64.b32encode(data).decode().rstrip("=").lower()
