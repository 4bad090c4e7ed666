"""Egress's end of the pair on which the spawner hands over what is new at SIGHUP."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable

import structlog

from jail.host.messages import Handed, HostError, Ping, Pong, Reload, ToEgress, receive_message, send_message

_log = structlog.get_logger(__name__)


class SpawnerEnd:
    """Collects what is handed over until it is to be used. On the running loop's thread.

    Args:
        sock: ours; the other end says nothing but Handed, Reload, and Ping, which is answered.
        reload: is given the descriptors by flag, and closes them.
    """

    def __init__(self, sock: socket.socket, reload: Callable[[dict[str, int]], None]) -> None:
        self._sock, self._reload = sock, reload
        self._handed: dict[str, int] = {}
        self._loop = asyncio.get_running_loop()
        sock.setblocking(False)
        self._loop.add_reader(sock.fileno(), self._on_readable)

    def close(self) -> None:
        """Hear no more; harmless twice."""
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()
        self._forget()

    def _on_readable(self) -> None:
        try:
            received = receive_message(self._sock, ToEgress)
        except (BlockingIOError, InterruptedError):
            return
        except (OSError, HostError) as error:
            _log.error("spawner_link_failed", error=str(error))
            received = None
        if received is None:
            self.close()  # the spawner's end is ours by other means
            return
        message, fd = received
        if isinstance(message, Handed) and fd is not None:
            self._drop(message.name)
            self._handed[message.name] = fd
        elif isinstance(message, Ping):
            # a spawner that does not read is about to end us anyway
            with contextlib.suppress(OSError):
                send_message(self._sock, Pong())
        elif isinstance(message, Reload):
            handed, self._handed = self._handed, {}
            self._reload(handed)

    def _drop(self, name: str) -> None:
        if (fd := self._handed.pop(name, None)) is not None:
            with contextlib.suppress(OSError):
                os.close(fd)

    def _forget(self) -> None:
        for name in list(self._handed):
            self._drop(name)
