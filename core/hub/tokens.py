"""Who asks: the bearer token of a request, verified by the vault."""

import asyncio
import re
from typing import Protocol

from aiohttp import web

from core.errors import LinkError
from core.hub.errors import HubError, invalid
from core.vault.handle import UserHandle

_BEARER = re.compile(r"bearer +([\x21-\x7e]{1,512}) *", re.IGNORECASE)
_KEY = re.compile(r"([\x21-\x7e]{1,512})")
_VERIFY_TIMEOUT_S = 10.0

_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="certosa"'}


class Verifier(Protocol):
    """Verifies tokens; the vault does."""

    async def verify(self, token: str) -> UserHandle | None:
        """Whose token it is, or None where it is wrong, revoked or of a disabled user.

        Raises LinkError when it cannot be asked.
        """
        ...


async def authenticate(request: web.Request, verifier: Verifier) -> UserHandle:
    """The user who made a request, or HubError 400, 401 or 503.

    The token is the bearer's, or stands in x-api-key, where Anthropic's clients put it.
    """
    bearer, key = _one(request, "Authorization"), _one(request, "x-api-key")
    if bearer is None and key is None:
        raise HubError(
            401,
            "no token: send the header `Authorization: Bearer TOKEN`, or `x-api-key: TOKEN`"
            " (OpenAI's and Anthropic's clients call it api_key); `certosa token new USER` makes one",
            "missing_token",
            headers=_CHALLENGE,
        )
    found = _BEARER.fullmatch(bearer) if bearer is not None else _KEY.fullmatch(key or "")
    if found is not None and bearer is not None and key not in (None, found[1]):
        raise invalid("Authorization and x-api-key hold different tokens; send one", "duplicate_header")
    handle = await _verify(verifier, found[1]) if found else None
    if handle is None:
        raise invalid_token()
    return handle


def invalid_token() -> HubError:
    """For a token that is none, or whose user was deleted or disabled since it was verified."""
    return HubError(
        401,
        "this token is not valid: it may be mistyped, revoked, or its user disabled;"
        " `certosa token new USER` makes a new one",
        "invalid_token",
        headers=_CHALLENGE,
    )


def _one(request: web.Request, name: str) -> str | None:
    found = request.headers.getall(name, [])
    if len(found) > 1:
        # two layers could each believe another one of them
        raise invalid(f"the {name} header came more than once", "duplicate_header", name)
    return found[0] if found else None


async def _verify(verifier: Verifier, token: str) -> UserHandle | None:
    try:
        async with asyncio.timeout(_VERIFY_TIMEOUT_S):
            return await verifier.verify(token)
    except (LinkError, TimeoutError):
        raise HubError(
            503, "tokens cannot be verified just now; try again", "unavailable", retry_after_s=2
        ) from None
