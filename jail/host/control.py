"""The spawner's end of its socket to core: never waits, bounded both ways."""

import os
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from jail.host.loop import Loop
from jail.host.messages import FromCore, HostError, ToCore, receive_message, send_message

_MAX_UNREAD_S: Final = 30.0
_MAX_BATCH: Final = 64  # requests taken before others get their turn


class _Outgoing(NamedTuple):
    message: msgspec.Struct
    fd: int | None
    since_s: float


class Control:
    """Messages to and from one life of core's.

    Args:
        take: is given each request; what it raises as HostError is core's fault.
        fault: is told, once, that core broke the protocol, does not read, or closed its end.
        max_queued: messages kept for a core that does not read.
    """

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        take: Callable[[FromCore], None],
        fault: Callable[[str], None],
        max_queued: int,
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._take = take
        self._fault = fault
        self._max_queued = max_queued
        self._queue: deque[_Outgoing] = deque()
        self._closed = False
        sock.setblocking(False)
        loop.watch(sock.fileno(), self._on_event)

    def send(self, message: ToCore, fd: int | None = None) -> None:
        """Queue a message; ``fd`` is taken over and closed when sent or given up."""
        if self._closed:
            if fd is not None:
                os.close(fd)
            return
        self._queue.append(_Outgoing(message, fd, time.monotonic()))
        self._flush()
        stuck = self._queue and time.monotonic() - self._queue[0].since_s > _MAX_UNREAD_S
        if stuck or len(self._queue) > self._max_queued:
            self._end("it does not read what the spawner sends")

    def close(self) -> None:
        """Close our end; nothing more is sent or taken."""
        if self._closed:
            return
        self._closed = True
        self._loop.forget(self._sock.fileno())
        self._sock.close()
        while self._queue:
            fd = self._queue.popleft().fd
            if fd is not None:
                os.close(fd)

    def _end(self, why: str) -> None:
        self.close()
        self._fault(why)

    def _flush(self) -> None:
        while self._queue and not self._closed:
            message, fd, _ = self._queue[0]
            try:
                send_message(self._sock, message, fd)
            except BlockingIOError:
                break
            except OSError as error:
                self._end(f"its control socket failed: {error.strerror}")
                return
            self._queue.popleft()
            if fd is not None:
                os.close(fd)
        if not self._closed:
            self._loop.watch(self._sock.fileno(), self._on_event, write=bool(self._queue))

    def _on_event(self) -> None:
        if self._queue:
            self._flush()
        for _ in range(_MAX_BATCH):
            if self._closed:
                return
            try:
                received = receive_message(self._sock, FromCore)
                if received is None:
                    self._end("it closed its control socket")
                    return
                message, fd = received
                if fd is not None:  # nothing that core may say comes with one
                    os.close(fd)
                    raise HostError("a request came with a descriptor")
                self._take(message)  # type: ignore[arg-type]  # decoded as this union
            except BlockingIOError:
                return
            except (HostError, OSError) as error:
                self._end(str(error))
                return
