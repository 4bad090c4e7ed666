"""Sending a part of an answer to a client that may not read it."""

import asyncio

from aiohttp import web

_AT_ONCE_BYTES = 16 << 10
"""With nothing else unsent this stays below the mark at which a transport makes its writer wait."""


class ClientStalled(ConnectionError):
    """The client doesn't read."""


async def write(
    request: web.Request, response: web.StreamResponse, data: bytes, stall_s: float = 30.0
) -> None:
    """Send some bytes, the headers before the first.

    A client that leaves it unread for ``stall_s`` seconds loses its connection: ClientStalled.
    """
    if response.prepared and len(data) <= _AT_ONCE_BYTES and _has_room(request):
        await response.write(data)  # nothing to wait for, so nothing to time
        return
    try:
        async with asyncio.timeout(stall_s):
            if not response.prepared:
                await response.prepare(request)
            await response.write(data)
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
        raise ClientStalled("the client stopped reading") from None


def _has_room(request: web.Request) -> bool:
    return request.transport is not None and request.transport.get_write_buffer_size() == 0
