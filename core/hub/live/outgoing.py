"""What goes out on a WebSocket: many messages in one write, and no waiting while the client reads.

The frames are our own (RFC 6455, 5.2: a server's are not masked, and short ones a few bytes); the
library's way writes each by itself. Handshake, pings, reading and the closing stay the library's.
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Iterable

from aiohttp import web

from core.hub.writing import ClientStalled

_TEXT = 0x81  # the last frame of a message of text
_SHORT, _MEDIUM = 126, 1 << 16


def frame(text: bytes) -> bytes:
    """A message of text as one frame."""
    size = len(text)
    if size < _SHORT:
        return bytes((_TEXT, size)) + text
    if size < _MEDIUM:
        return struct.pack("!BBH", _TEXT, 126, size) + text
    return struct.pack("!BBQ", _TEXT, 127, size) + text


class Outgoing:
    """One connection's sending side.

    Args:
        request: whose connection it is, upgraded.
        drain: waits until the connection takes more.
        stall_s: how long that may be (in seconds).
    """

    def __init__(self, request: web.Request, drain: Callable[[], Awaitable[None]], stall_s: float) -> None:
        self._request = request
        self._drain = drain
        self._stall_s = stall_s
        self._draining: asyncio.Future[None] | None = None

    @property
    def stalled(self) -> bool:
        """Whether what was sent waits for the client to read."""
        return self._draining is not None

    async def send(self, texts: Iterable[bytes]) -> None:
        """Send messages in order, then wait while the client is behind.

        ConnectionResetError where it is gone, ClientStalled where it doesn't read.
        """
        self.write(texts)
        if self._request.protocol.writing_paused:
            await self._wait()

    def write(self, texts: Iterable[bytes]) -> None:
        """Send messages without waiting."""
        transport = self._request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client left")
        transport.write(b"".join(map(frame, texts)))

    async def _wait(self) -> None:
        # several watches wait for the same: none may take it away from the others by its own end
        if self._draining is None:
            self._draining = asyncio.ensure_future(self._drain())
            self._draining.add_done_callback(self._drained)
        done, _ = await asyncio.wait({self._draining}, timeout=self._stall_s)
        if not done:
            raise ClientStalled("the client stopped reading")

    def _drained(self, draining: "asyncio.Future[None]") -> None:
        self._draining = None
        if not draining.cancelled() and draining.exception() is None:
            return
        # the connection is gone, which the next write says

    def close(self) -> None:
        """Wait for nothing any more."""
        if self._draining is not None:
            self._draining.cancel()
