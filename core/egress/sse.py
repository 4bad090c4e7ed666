"""Server-sent events without a socket: bytes in, the data of whole events out.

The grammar is the HTML standard's (https://html.spec.whatwg.org/multipage/server-sent-events.html);
only ``data`` is of use here, so event names, ids and retry times are skipped.
"""

from core.errors import CoreError

MAX_LINE_BYTES = 1 << 20
"""A whole tool call may come as one line; nothing a model says in one piece is longer."""
MAX_EVENT_BYTES = 1 << 20
_BOM = b"\xef\xbb\xbf"


class SseError(CoreError):
    """The stream is not one we read; the message never has its bytes."""


class SseParser:
    """Feed it what arrives. After an SseError it is of no more use."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._after_cr = False
        self._first = True

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes; return the data of each event they complete, lines joined by LF."""
        if self._after_cr and data:
            data = data.removeprefix(b"\n")  # the other half of a CRLF
            self._after_cr = False
        if not data:
            return []
        self._after_cr = data.endswith(b"\r")
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *whole, rest = data.split(b"\n")
        events: list[bytes] = []
        for part in whole:
            self._extend(part)
            line = bytes(self._line)
            self._line.clear()
            self._on_line(line, events)
        self._extend(rest)
        return events

    def _extend(self, part: bytes) -> None:
        if len(self._line) + len(part) > MAX_LINE_BYTES:
            raise SseError(f"a line of more than {MAX_LINE_BYTES} bytes")
        self._line += part

    def _on_line(self, line: bytes, events: list[bytes]) -> None:
        if self._first:
            line = line.removeprefix(_BOM)
            self._first = False
        if not line:
            if self._data:
                events.append(b"\n".join(self._data))
                self._data, self._data_bytes = [], 0
            return
        name, _, value = line.partition(b":")
        if name != b"data":
            return
        value = value.removeprefix(b" ")
        self._data_bytes += len(value) + 1
        if self._data_bytes > MAX_EVENT_BYTES:
            raise SseError(f"an event of more than {MAX_EVENT_BYTES} bytes")
        self._data.append(value)
