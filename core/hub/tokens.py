"""Who asks: the bearer token of a request, verified by the vault."""

import asyncio
import re
from typing import Protocol

from aiohttp import web

from core.errors import LinkError
from core.hub.errors import HubError, invalid
from core.vault.handle import UserHandle

_BEARER = re.compile(r"bearer +([\x21-\x7e]{1,512}) *", re.IGNORECASE)
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
    """The user who made a request, or HubError 400, 401 or 503."""
    headers = request.headers.getall("Authorization", [])
    if len(headers) > 1:
        # two layers could each believe another one of them
        raise invalid("the Authorization header came more than once", "duplicate_header", "Authorization")
    if not headers:
        raise HubError(
            401,
            "no token: send the header `Authorization: Bearer TOKEN`"
            " (an OpenAI client calls it api_key); `certosa token new USER` makes one",
            "missing_token",
            headers=_CHALLENGE,
        )
    match = _BEARER.fullmatch(headers[0])
    handle = await _verify(verifier, match[1]) if match else None
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


async def _verify(verifier: Verifier, token: str) -> UserHandle | None:
    try:
        async with asyncio.timeout(_VERIFY_TIMEOUT_S):
            return await verifier.verify(token)
    except (LinkError, TimeoutError):
        raise HubError(
            503, "tokens cannot be verified just now; try again", "unavailable", retry_after_s=2
        ) from None
