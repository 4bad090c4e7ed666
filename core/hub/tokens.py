"""Who asks: the bearer token of a request, verified by the vault."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import structlog
from aiohttp import web

from core.errors import LinkError
from core.hub.access import ACCESS
from core.hub.errors import HubError, invalid
from core.vault.handle import UserHandle

_BEARER = re.compile(r"bearer +([\x21-\x7e]{1,512}) *", re.IGNORECASE)
_KEY = re.compile(r"([\x21-\x7e]{1,512})")
_VERIFY_TIMEOUT_S = 10.0

_USERS = "`certosa token new USER`"
_ADMINS = "`certosa token new --admin`"
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="certosa"'}

_T = TypeVar("_T")
_log = structlog.get_logger()


class Verifier(Protocol):
    """Verifies tokens; the vault does."""

    async def verify(self, token: str) -> UserHandle | None:
        """Whose token it is, or None where it is wrong, revoked or of a disabled user.

        Raises LinkError when it cannot be asked.
        """
        ...

    async def verify_admin(self, token: str) -> str | None:
        """The id of an administrator's token, or None where it is wrong, revoked or a user's.

        Raises LinkError when it cannot be asked.
        """
        ...


async def authenticate(request: web.Request, verifier: Verifier) -> UserHandle:
    """The user who made a request, or HubError 400, 401, 429 or 503.

    The token is the bearer's, or stands in x-api-key, where Anthropic's clients put it.
    """
    handle = await _let_in(request, _USERS, verifier.verify)
    if handle is None:
        raise invalid_token()
    return handle


async def authenticate_admin(request: web.Request, verifier: Verifier) -> str:
    """The id of the administrator's token of a request, or HubError as :func:`authenticate`."""
    token_id = await _let_in(request, _ADMINS, verifier.verify_admin)
    if token_id is None:
        raise HubError(
            401,
            "this is no valid token of an administrator: it may be mistyped or revoked, or a user's; "
            f"{_ADMINS} makes a new one",
            "invalid_token",
            headers=_CHALLENGE,
        )
    return token_id


async def _let_in(request: web.Request, how: str, verify: Callable[[str], Awaitable[_T | None]]) -> _T | None:
    """Whose token came with a request, None where it is wrong; limits of wrong ones kept."""
    bearer, key = _one(request, "Authorization"), _one(request, "x-api-key")
    if bearer is None and key is None:
        raise HubError(
            401,
            "no token: send the header `Authorization: Bearer TOKEN`, or `x-api-key: TOKEN`"
            f" (OpenAI's and Anthropic's clients call it api_key); {how} makes one",
            "missing_token",
            headers=_CHALLENGE,
        )
    found = _BEARER.fullmatch(bearer) if bearer is not None else _KEY.fullmatch(key or "")
    if found is not None and bearer is not None and key not in (None, found[1]):
        raise invalid("Authorization and x-api-key hold different tokens; send one", "duplicate_header")
    token = found[1] if found else ""
    access = request.config_dict[ACCESS]
    access.check(request, token)
    owner = await _verified(verify, token) if token else None
    if owner is None:
        access.failed(request, token)
    else:
        access.succeeded(request, token)
    return owner


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


async def _verified(verify: Callable[[str], Awaitable[_T | None]], token: str) -> _T | None:
    try:
        async with asyncio.timeout(_VERIFY_TIMEOUT_S):
            return await verify(token)
    except (LinkError, TimeoutError) as error:
        # why is the operator's to read; a client learns that its token is not at fault
        _log.warning("token_not_verified", reason=str(error) or "timed out")
        raise HubError(
            503, "tokens cannot be verified just now; try again", "unavailable", retry_after_s=2
        ) from None
