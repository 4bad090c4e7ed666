"""Egress's end of the link to core, on the event loop."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from core.egress.messages import ToEgress
from core.errors import LinkError
from core.link import LinkReader, encode_message

_HIGH_WATER_BYTES = 1 << 20


class Link(asyncio.Protocol):
    """Messages in, messages out, in order; the messages of one round of the loop go as one write.

    Args:
        received: called with each message of core's; a LinkError from it ends the link.
        opened: called with False when core takes no more at present, with True when it does again.
    """

    def __init__(self, received: Callable[[Any], None], opened: Callable[[bool], None]) -> None:
        self._received = received
        self._opened = opened
        self._reader = LinkReader(ToEgress)
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = []
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[LinkError | None] = self._loop.create_future()
        """Set at the link's end: None for an end of file, the error otherwise."""

    def send(self, message: msgspec.Struct) -> None:
        """Send a message; on the loop's thread. After the link's end it goes nowhere."""
        if self._transport is None:
            return
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(encode_message(message))

    def send_threadsafe(self, message: msgspec.Struct) -> None:
        """Send a message from another thread."""
        self._loop.call_soon_threadsafe(self.send, message)

    def close(self) -> None:
        """Send what is left and end the link."""
        self._flush()
        if self._transport is not None:
            self._transport.close()
        self._end(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio's hook."""
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """asyncio's hook."""
        if self.ended.done():
            return
        try:
            for message in self._reader.feed(data):
                self._received(message)
        except LinkError as error:
            self._end(error)

    def pause_writing(self) -> None:
        """asyncio's hook: core is behind. Deltas merge, and no more questions are read."""
        self._opened(False)
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """asyncio's hook: core has caught up."""
        if self._transport is not None:
            self._transport.resume_reading()
        self._opened(True)

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio's hook: core ended, or the spawner took the link away."""
        self._transport = None
        self._end(None if exc is None else LinkError(f"the link broke: {type(exc).__name__}"))

    def _flush(self) -> None:
        data, self._unsent = b"".join(self._unsent), []
        if data and self._transport is not None:
            self._transport.write(data)

    def _end(self, error: LinkError | None) -> None:
        if not self.ended.done():
            self.ended.set_result(error)
