"""The spawner's end of its pair to egress: what is new and questions go over it, answers come back."""

import os
import socket
from collections.abc import Callable

import msgspec

from jail.host.loop import Loop
from jail.host.messages import (
    MAX_MOUNTS,
    FromEgress,
    HostError,
    MountsGiven,
    MountsRefused,
    Pong,
    receive_with_fds,
    send_message,
)

OnMounts = Callable[[MountsGiven | MountsRefused, tuple[int, ...]], None]


class EgressControl:
    """The end of one life of egress's.

    Args:
        answered: called for each Pong.
        mounts: takes each answer to AskMounts, and the descriptors that came along.
        fault: is told, once, that this end is of no more use, and why; "" where egress closed its own.
    """

    def __init__(
        self, loop: Loop, answered: Callable[[], None], mounts: OnMounts, fault: Callable[[str], None]
    ) -> None:
        self._loop, self._answered, self._mounts, self._fault = loop, answered, mounts, fault
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
            received = receive_with_fds(self._sock, FromEgress, MAX_MOUNTS)
        except BlockingIOError:
            return
        except (HostError, OSError) as error:
            self._end(str(error))
            return
        if received is None:
            self._end("")
            return
        match received:
            case MountsGiven() | MountsRefused() as answer, fds:
                self._mounts(answer, fds)
            case Pong(), ():
                self._answered()
            case _, fds:
                for fd in fds:
                    os.close(fd)
                self._end("a word came with a descriptor")

    def _end(self, why: str) -> None:
        self.close()
        self._fault(why)
