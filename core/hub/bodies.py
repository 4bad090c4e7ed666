"""Bodies: a request's, read within limits and typed, and an answer's, as JSON."""

import asyncio
from typing import TypeVar

import msgspec
from aiohttp import web

from core.hub.errors import HubError, invalid
from core.hub.request import decoded
from core.hub.tokens import invalid_token
from core.vault.handle import UserHandle

_READ_TIMEOUT_S = 60.0
_T = TypeVar("_T", bound=msgspec.Struct)


async def read_body(request: web.Request, handle: UserHandle | None) -> bytes:
    """A request's body, bounded by the application's limit and in time; HubError otherwise.

    Args:
        handle: of who was let in, None for the operator. The body may have taken a minute: HubError 401
            for a user who was ended meanwhile, since what follows goes by a name that may be another's.
    """
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise HubError(415, "send the body uncompressed", "unsupported_encoding")
    data = bytearray()
    try:
        async with asyncio.timeout(_READ_TIMEOUT_S):
            # request.read() would keep the body for as long as the answer takes
            while piece := await request.content.readany():
                data += piece
                if len(data) > request.client_max_size:
                    raise web.HTTPRequestEntityTooLarge(request.client_max_size, len(data))
    except TimeoutError:
        raise HubError(408, "the body did not come in time", "request_timeout") from None
    if handle is not None and not handle.standing.is_good():
        raise invalid_token()
    return bytes(data)


async def parsed(request: web.Request, kind: type[_T], handle: UserHandle) -> _T:
    """A request's body, typed; HubError 400 naming the field, and as :func:`read_body`."""
    data = await read_body(request, handle)
    return decoded(data, lambda body: msgspec.json.decode(body, type=kind), {})


def as_expected(body: bytes, kind: type[_T]) -> _T:
    """A body, typed; HubError 400 ``invalid_request``, whatever is wrong with it."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise invalid(f"the body is not what is expected: {error}", "invalid_request") from None


def as_json(body: object, status: int = 200) -> web.Response:
    """An answer of JSON."""
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")
