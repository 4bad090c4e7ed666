"""ZMTP 3.1 with the NULL mechanism, without a socket (https://rfc.zeromq.org/spec/37/).

The worker speaks through libzmq; this is core's end. Only what a PAIR needs is understood: the
greeting, READY, PING, and messages of one part. A long frame is refused at its header and a
multipart message at its first flag, before any of it is buffered.
"""

import struct
import sys

from jail.wire.errors import LocalFault, PeerFault

_GREETING_BYTES = 64
# signature, version 3.1, mechanism NULL padded to 20, as-server 0, filler
_GREETING = b"\xff" + b"\x00" * 8 + b"\x7f" + b"\x03\x01" + b"NULL".ljust(20, b"\x00") + b"\x00" * 32
_MORE, _LONG, _COMMAND = 1, 2, 4
# a READY with every property libzmq sends stays below 64 bytes; PING carries at most 16 of context
_MAX_COMMAND_BYTES = 512
_MAX_PING_CONTEXT_BYTES = 16
# PONGs we owe; libzmq sends a PING each heartbeat at most, so nobody honest comes near
_MAX_OWED_BYTES = 1_024


def _command(name: bytes, data: bytes) -> bytes:
    body = bytes([len(name)]) + name + data
    return bytes([_COMMAND, len(body)]) + body


def _property(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + struct.pack(">I", len(value)) + value


_READY = _command(b"READY", _property(b"Socket-Type", b"PAIR") + _property(b"Identity", b""))


class Zmtp:
    """One end of a ZMTP connection between two PAIR sockets: bytes in, messages out.

    Args:
        max_message_bytes: a longer message is the peer's fault ``oversize``.

    After a :class:`PeerFault` the object is poisoned: each later ``feed`` raises it again.
    """

    def __init__(self, max_message_bytes: int) -> None:
        self._max_message_bytes = max_message_bytes
        self._buffer = bytearray()
        self._outgoing = bytearray(_GREETING)
        self._greeted = False
        self._ready = False
        self._fault: PeerFault | None = None
        self._handled = 0
        self._more = False

    @property
    def more(self) -> bool:
        """Whether the last ``feed`` stopped at its limit: ``feed(b"")`` goes on."""
        return self._more

    @property
    def handled(self) -> int:
        """Frames that the last ``feed`` took in, commands among them."""
        return self._handled

    @property
    def ready(self) -> bool:
        """Whether the peer's READY has come, so that messages may follow."""
        return self._ready

    def outgoing(self) -> bytes:
        """What has to be sent for the protocol's own sake (greeting, READY, PONG), once."""
        data = bytes(self._outgoing)
        self._outgoing.clear()
        return data

    def encode(self, message: bytes) -> bytes:
        """Frame one message for the peer; raises LocalFault for one past the limit."""
        size = len(message)
        if size > self._max_message_bytes:
            raise LocalFault(f"message of {size} bytes, limit {self._max_message_bytes}")
        if size < 256:
            return bytes((0, size)) + message
        return struct.pack(">BQ", _LONG, size) + message

    def feed(self, data: bytes, most: int = sys.maxsize) -> list[bytes]:
        """Take bytes from the peer and return the messages they complete, in order.

        It stops after ``most`` frames, whatever they are; see :attr:`more`.
        """
        if self._fault is not None:
            raise self._fault
        self._buffer += data
        messages: list[bytes] = []
        handled = 0
        try:
            if self._greeted or self._take_greeting():
                while handled < most and (frame := self._take_frame()) is not None:
                    handled += 1
                    flags, body = frame
                    if flags & _COMMAND:
                        self._on_command(body)
                    else:
                        messages.append(body)
        except PeerFault as fault:
            self._fault = fault
            self._buffer.clear()
            raise
        self._handled = handled
        self._more = handled >= most and bool(self._buffer)
        return messages

    def _take_greeting(self) -> bool:
        head = self._buffer
        # refuse as early as the bytes allow: whoever speaks HTTP is told apart at once
        if (head and head[0] != 0xFF) or (len(head) >= 10 and not head[9] & 1):
            raise PeerFault("greeting", "not a ZMTP signature")
        if len(head) >= 11 and head[10] < 3:
            raise PeerFault("greeting", f"ZMTP version {head[10]}, at least 3 is needed")
        if len(head) < _GREETING_BYTES:
            return False
        if bytes(head[12:32]).rstrip(b"\x00") != b"NULL":
            raise PeerFault("greeting", "mechanism is not NULL")
        del head[:_GREETING_BYTES]
        self._greeted = True
        self._outgoing += _READY
        return True

    def _take_frame(self) -> tuple[int, bytes] | None:
        buffer = self._buffer
        if not buffer:
            return None
        flags = buffer[0]
        if flags & ~(_MORE | _LONG | _COMMAND):
            raise PeerFault("command", "reserved flag set")
        if flags & _MORE:
            raise PeerFault("multipart", "messages have one part here")
        header = 9 if flags & _LONG else 2
        if len(buffer) < header:
            return None
        size = struct.unpack_from(">Q", buffer, 1)[0] if flags & _LONG else buffer[1]
        self._check_size(flags, size)
        if len(buffer) < header + size:
            return None
        body = bytes(buffer[header : header + size])
        del buffer[: header + size]
        return flags, body

    def _check_size(self, flags: int, size: int) -> None:
        limit = _MAX_COMMAND_BYTES if flags & _COMMAND else self._max_message_bytes
        if size > limit:
            raise PeerFault("oversize", f"frame of {size} bytes, limit {limit}")
        if not flags & _COMMAND and not self._ready:
            raise PeerFault("command", "message before READY")

    def _on_command(self, body: bytes) -> None:
        name_bytes = body[0] if body else 0
        name, data = body[1 : 1 + name_bytes], body[1 + name_bytes :]
        if name == b"READY" and not self._ready:
            if _properties(data).get(b"socket-type") != b"PAIR":
                raise PeerFault("command", "the peer's socket is not a PAIR")
            self._ready = True
        elif name == b"PING" and self._ready and len(data) >= 2:
            self._outgoing += _command(b"PONG", data[2 : 2 + _MAX_PING_CONTEXT_BYTES])
            if len(self._outgoing) > _MAX_OWED_BYTES:
                raise PeerFault("flood", "PINGs faster than they can be answered")
        elif name == b"PONG" and self._ready:
            pass
        else:
            raise PeerFault("command", "unexpected ZMTP command")


def _properties(data: bytes) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    while data:
        name_bytes = data[0]
        at = 1 + name_bytes
        if len(data) < at + 4:
            raise PeerFault("command", "READY is cut short")
        (size,) = struct.unpack_from(">I", data, at)
        if len(data) < at + 4 + size:
            raise PeerFault("command", "READY is cut short")
        found[data[1:at].lower()] = data[at + 4 : at + 4 + size]
        data = data[at + 4 + size :]
    return found
