"""What a client may send on a WebSocket, counted before the library reads it.

A frame costs its sender six bytes and the server a good deal more, whatever it holds: a quarter of a megabyte
is 43,000 empty ones, read in one go on everybody's loop. So small frames are counted, fragments and
control frames among them, and all bytes have a pace.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

from core.hub.live.limits import Bucket

_SMALL_BYTES = 1_024
"""A frame of that much is no flood by its number: its bytes are counted."""
_EXTENDED = {126: 2, 127: 8}
_MASKED = 0x80


class Frames:
    """Finds the frames in a client's bytes (RFC 6455, 5.2). Pure."""

    def __init__(self) -> None:
        self._head = b""
        self._skip = 0

    def sizes(self, data: bytes) -> Iterator[int]:
        """The payload's length (in bytes) of each frame whose head is complete; read it to its end."""
        data, at = self._head + data, self._skip
        while len(data) - at >= 2:
            length = data[at + 1] & ~_MASKED
            extended = _EXTENDED.get(length, 0)
            head = 2 + extended + (4 if data[at + 1] & _MASKED else 0)
            if len(data) - at < head:
                break
            if extended:
                length = int.from_bytes(data[at + 2 : at + 2 + extended], "big")
            yield length
            at += head + length
        self._head, self._skip = data[at:], max(0, at - len(data))


class Reader(Protocol):
    """The library's parser of what comes in."""

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Whether that was the end, and what is left."""
        ...

    def feed_eof(self) -> None:
        """No more comes."""
        ...


class Gauge:
    """Stands before the library's parser.

    Args:
        small: how many small frames may come.
        pace: how many bytes may.
        clock_s: monotonic, in seconds.
        flooded: called when there are too many frames, and each time that more comes: all of it is dropped.
        slow: called with how long to read nothing (in seconds), because the bytes come too fast.
    """

    def __init__(
        self,
        small: Bucket,
        pace: Bucket,
        clock_s: Callable[[], float],
        flooded: Callable[[], None],
        slow: Callable[[float], None],
    ) -> None:
        self._small, self._pace, self._clock_s = small, pace, clock_s
        self._flooded, self._slow = flooded, slow
        self._frames = Frames()
        self._full = False

    def admits(self, data: bytes) -> bool:
        """Whether these bytes may be parsed."""
        now_s = self._clock_s()
        self._full = self._full or not all(
            size >= _SMALL_BYTES or self._small.take(now_s) for size in self._frames.sizes(data)
        )
        if self._full:
            self._flooded()
            return False
        if (wait_s := self._pace.spend(len(data), now_s)) > 0:
            self._slow(wait_s)
        return True


class Gauged:
    """A parser behind a gauge: what the gauge does not admit never reaches it."""

    def __init__(self, reader: Reader, gauge: Gauge) -> None:
        self._reader, self._gauge = reader, gauge
        self.feed_eof = reader.feed_eof

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """As the parser's."""
        return self._reader.feed_data(data) if self._gauge.admits(data) else (False, b"")
