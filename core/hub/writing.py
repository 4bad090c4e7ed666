"""Sending a part of an answer to a client that may not read it."""

import asyncio

from aiohttp import web


class ClientStalled(ConnectionError):
    """The client doesn't read."""


async def write(
    request: web.Request, response: web.StreamResponse, data: bytes, stall_s: float = 30.0
) -> None:
    """Send some bytes, the headers before the first.

    A client that leaves it unread for ``stall_s`` seconds loses its connection: ClientStalled.
    """
    try:
        async with asyncio.timeout(stall_s):
            if not response.prepared:
                await response.prepare(request)
            await response.write(data)
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
        raise ClientStalled("the client stopped reading") from None
