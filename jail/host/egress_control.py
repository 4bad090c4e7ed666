"""The spawner's end of its pair to egress: what is new goes over it, answers that it lives come back."""

import os
import socket
from collections.abc import Callable

import msgspec

from jail.host.loop import Loop
from jail.host.messages import FromEgress, HostError, receive_message, send_message


class EgressControl:
    """The end of one life of egress's.

    Args:
        answered: called for each Pong.
        fault: is told, once, that this end is of no more use, and why; "" where egress closed its own.
    """

    def __init__(self, loop: Loop, answered: Callable[[], None], fault: Callable[[str], None]) -> None:
        self._loop, self._answered, self._fault = loop, answered, fault
        self._sock, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._sock.setblocking(False)
        loop.watch(self._sock.fileno(), self._on_word)

    def send(self, message: msgspec.Struct, fd: int | None = None) -> None:
        """Send at once; ``fd`` stays the caller's. Raises OSError where egress is gone or does not read."""
        send_message(self._sock, message, fd)

    def close(self) -> None:
        """Close both ends, as far as they are ours; harmless twice."""
        if self._sock.fileno() >= 0:
            self._loop.forget(self._sock.fileno())
            self._sock.close()
        self.theirs.close()

    def _on_word(self) -> None:
        if self._sock.fileno() < 0:  # closed by who was called just before us
            return
        try:
            received = receive_message(self._sock, FromEgress)
        except BlockingIOError:
            return
        except (HostError, OSError) as error:
            self._end(str(error))
            return
        if received is None:
            self._end("")
            return
        if received[1] is not None:  # nothing that egress may say comes with one
            os.close(received[1])
            self._end("a word came with a descriptor")
            return
        self._answered()

    def _end(self, why: str) -> None:
        self.close()
        self._fault(why)
