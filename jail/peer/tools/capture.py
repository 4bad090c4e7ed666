"""A running program's output: bounded in memory, told to whoever watches at a bounded rate."""

import codecs
from collections.abc import Callable

_HEAD_BYTES = 512 * 1024
_TAIL_BYTES = 512 * 1024
_MAX_OUTPUT_BYTES = 64 * 1024 * 1024  # a program that writes more is ended
_PROGRESS_EVERY_S = 0.1
_PROGRESS_BYTES = 4_096  # at once
_PROGRESS_TOTAL_BYTES = 256 * 1024


class Capture:
    """Takes output, keeps its head and its tail.

    Args:
        progress: takes text for the person who watches.
        now: the time in seconds, monotonic.
    """

    def __init__(self, progress: Callable[[str], None], now: Callable[[], float]) -> None:
        self._progress = progress
        self._now = now
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._unsaid = ""
        self._said_at_s = -_PROGRESS_EVERY_S
        self._said_bytes = 0

    def take(self, data: bytes) -> bool:
        """Take a piece; False when the program has written too much."""
        self._total += len(data)
        room = _HEAD_BYTES - len(self._head)
        if room > 0:
            self._head += data[:room]
        self._tail += data[max(0, room) :]
        if len(self._tail) > 2 * _TAIL_BYTES:
            del self._tail[:-_TAIL_BYTES]
        self._watch(data)
        return self._total <= _MAX_OUTPUT_BYTES

    def text(self) -> str:
        """All that was kept."""
        tail = self._tail[-_TAIL_BYTES:]
        left_out = self._total - len(self._head) - len(tail)
        between = b"\n[... %d bytes left out ...]\n" % left_out if left_out else b""
        return (bytes(self._head) + between + bytes(tail)).decode("utf-8", "replace")

    def _watch(self, data: bytes) -> None:
        if self._said_bytes >= _PROGRESS_TOTAL_BYTES:
            return
        self._unsaid = (self._unsaid + self._decoder.decode(data))[-_PROGRESS_BYTES:]
        if self._unsaid and self._now() - self._said_at_s >= _PROGRESS_EVERY_S:
            self.say_rest()

    def say_rest(self) -> None:
        """Tell whoever watches what has not been told yet."""
        if self._unsaid and self._said_bytes < _PROGRESS_TOTAL_BYTES:
            self._said_at_s = self._now()
            self._said_bytes += len(self._unsaid)
            self._progress(self._unsaid)
            self._unsaid = ""
