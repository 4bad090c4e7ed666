"""The link between core and egress: typed messages over a Unix stream pair, length first.

Both ends are ours and were handed to us by the spawner, so there is no address to bind, nobody
else can connect, and the other process's death is an end of file. Still typed and bounded: a
message is ``>I`` length and msgpack of one struct out of a closed union.
"""

import struct
from collections.abc import Callable
from typing import Any

import msgspec

from core.errors import LinkError

MAX_MESSAGE_BYTES = 4 << 20
"""A chat request carries at most one frame of the jail's (1 MiB), re-encoded, and some more."""

_HEADER = struct.Struct(">I")
_encoder = msgspec.msgpack.Encoder()


def encode_message(message: msgspec.Struct) -> bytes:
    """One message as bytes for the link; LinkError past MAX_MESSAGE_BYTES."""
    body = _encoder.encode(message)
    if len(body) > MAX_MESSAGE_BYTES:
        raise LinkError(f"message of {len(body)} bytes, limit {MAX_MESSAGE_BYTES}")
    return _HEADER.pack(len(body)) + body


class LinkReader:
    """Bytes in, messages out; ``kind`` is the union of what the other end may say."""

    def __init__(self, kind: Any) -> None:
        self._decode: Callable[[bytes], Any] = msgspec.msgpack.Decoder(kind).decode
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        """Take bytes; return the messages they complete. Raises LinkError."""
        self._buffer += data
        messages: list[Any] = []
        at = 0
        while len(self._buffer) - at >= _HEADER.size:
            (size,) = _HEADER.unpack_from(self._buffer, at)
            if size > MAX_MESSAGE_BYTES:
                raise LinkError(f"message of {size} bytes, limit {MAX_MESSAGE_BYTES}")
            end = at + _HEADER.size + size
            if len(self._buffer) < end:
                break
            try:
                messages.append(self._decode(bytes(self._buffer[at + _HEADER.size : end])))
            except msgspec.MsgspecError as error:
                raise LinkError(f"not a message of this link: {error}") from None
            at = end
        del self._buffer[:at]
        return messages
