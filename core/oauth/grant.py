"""Grants and the messages of RFC 6749, 7636 (PKCE) and 8628 (devices): pure, texts in, texts out."""

import base64
import hashlib
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import msgspec

from core.errors import CoreError
from core.oauth.section import OAuthSection

MAX_TOKEN_CHARACTERS = 16_384
_MIN_TOKEN_CHARACTERS = 8
_MAX_LIFE_S = 10 * 366 * 86_400
_RENEW_AHEAD_S = 120
_DEVICE_LIFE_S = 1_800
_STATE_BYTES = 32


class Grant(msgspec.Struct, frozen=True):
    """What a user granted. Times are Unix seconds.

    ``expires_s`` is 0 where the server did not say. ``lost``: it was revoked or has run out; nothing
    is left but to connect again.
    """

    provider: str
    access: str = ""
    refresh: str = ""
    got_s: int = 0
    expires_s: int = 0
    lost: bool = False

    def __repr__(self) -> str:
        return f"Grant({self.provider!r})"

    def is_due(self, now_s: float) -> bool:
        """Whether it is to be renewed before it is used: ahead of its end, so that no request meets it."""
        if not (self.expires_s and self.refresh):
            return self.is_over(now_s)
        return now_s >= self.expires_s - min(_RENEW_AHEAD_S, (self.expires_s - self.got_s) // 4)

    def is_over(self, now_s: float) -> bool:
        """Whether its access token is none any more."""
        return bool(self.expires_s) and now_s >= self.expires_s


class OAuthError(CoreError):
    """An authorization server said no, or nothing that helps.

    ``code`` is RFC 6749's (5.2), 8628's (3.5), ``unreachable`` or ``bad_answer``; the message is for
    people and free of secrets.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class DeviceCode(msgspec.Struct, frozen=True):
    """What a person types in at ``url``; ``device_code`` is for us alone."""

    device_code: str
    user_code: str
    url: str
    expires_in_s: int
    interval_s: float

    def __repr__(self) -> str:
        return "DeviceCode()"


class _Tokens(msgspec.Struct):
    access_token: str = ""
    token_type: str = "Bearer"  # noqa: S105 - what servers that leave it out mean
    refresh_token: str | None = None
    expires_in: int | float | str | None = None


class _Device(msgspec.Struct):
    device_code: str
    user_code: str
    expires_in: int | float = _DEVICE_LIFE_S
    interval: int | float = 5
    verification_uri: str = ""
    verification_url: str = ""  # what Google calls it


def fresh_secret() -> str:
    """A state, or a verifier of PKCE: 256 random bits in 43 characters."""
    return base64.urlsafe_b64encode(os.urandom(_STATE_BYTES)).rstrip(b"=").decode()


def challenge(verifier: str) -> str:
    """S256 of RFC 7636, 4.2."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def authorize_url(
    section: OAuthSection, redirect_uri: str, scopes: tuple[str, ...], state: str, verifier: str
) -> str:
    """Where a browser is sent (RFC 6749, 4.1.1)."""
    parts = urlsplit(section.authorize_url)
    query = {
        **dict(parse_qsl(parts.query)),
        **dict(text.split("=", 1) for text in section.authorize_parameters),
        "response_type": "code",
        "client_id": section.client_id,
        "redirect_uri": redirect_uri,
        **({"scope": " ".join(scopes)} if scopes else {}),
        "state": state,
        "code_challenge": challenge(verifier),
        "code_challenge_method": "S256",
    }
    return urlunsplit(parts._replace(query=urlencode(query)))


def basic(client_id: str, secret: str) -> str:
    """The header's value (RFC 6749, 2.3.1: both are form-encoded first)."""
    pair = f"{quote(client_id, safe='')}:{quote(secret, safe='')}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


def parse_tokens(provider: str, data: bytes, now_s: float, before: str) -> Grant:
    """A grant from a token endpoint's answer (RFC 6749, 5.1); ``before`` stays the refresh token where
    the answer has none. Raises OAuthError ``bad_answer``.
    """
    said = _decode(provider, data, _Tokens)
    if said.token_type.lower() != "bearer":
        raise OAuthError("bad_answer", f"{provider} gave a token of a kind that is not supported")
    tokens = (said.access_token, said.refresh_token or before)
    for token in tokens:
        if len(token) > MAX_TOKEN_CHARACTERS or not (token.isascii() and token.isprintable()) or " " in token:
            raise OAuthError("bad_answer", f"{provider} gave a token that is none")
    if len(tokens[0]) < _MIN_TOKEN_CHARACTERS:
        # a shorter one could be a word of an answer, and could not be struck out of it
        raise OAuthError("bad_answer", f"{provider} gave no access token, or too short a one")
    now = int(now_s)
    life_s = _seconds(said.expires_in)
    return Grant(provider, *tokens, now, now + life_s if life_s else 0)


def parse_device(provider: str, data: bytes) -> DeviceCode:
    """RFC 8628, 3.2. Raises OAuthError ``bad_answer``."""
    said = _decode(provider, data, _Device)
    url = said.verification_uri or said.verification_url
    fine = (
        0 < len(said.device_code) <= 4_096
        and 0 < len(said.user_code) <= 64
        and said.user_code.isascii()
        and said.user_code.isprintable()
        and url.startswith(("https://", "http://"))
        and len(url) <= 1_024
        and url.isascii()
        and url.isprintable()
        and " " not in url
    )
    if not fine:
        raise OAuthError("bad_answer", f"{provider} gave no code for a device")
    life_s = min(max(int(said.expires_in), 1), _DEVICE_LIFE_S)
    interval_s = min(max(float(said.interval), 1.0), 60.0)
    return DeviceCode(said.device_code, said.user_code, url, life_s, interval_s)


def error_code(data: bytes) -> str:
    """The ``error`` of an answer, empty where it has none; servers send it with status 200, too."""
    try:
        said: Any = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return ""
    code = said.get("error") if isinstance(said, Mapping) else None
    known = isinstance(code, str) and len(code) <= 64 and code.isascii() and code.isprintable()
    return str(code) if known else ""


def _seconds(said: int | float | str | None) -> int:
    try:
        return min(max(int(float(said or 0)), 0), _MAX_LIFE_S)
    except (ValueError, OverflowError):
        return 0


def _decode(provider: str, data: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise OAuthError("bad_answer", f"{provider} gave an answer that is not one of OAuth 2") from None
