"""Egress's end of the pair on which the spawner hands over what is new at SIGHUP, and asks for mounts."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable

import structlog

from core.egress.vault_access import VaultUnavailable
from jail.host.messages import (
    AskMounts,
    Handed,
    HostError,
    MountsGiven,
    MountsRefused,
    Ping,
    Pong,
    Reload,
    ToEgress,
    receive_message,
    send_message,
)

_log = structlog.get_logger(__name__)


class SpawnerEnd:
    """Collects what is handed over until it is to be used. On the running loop's thread.

    Args:
        sock: ours; the other end says nothing but Handed, Reload, and Ping and AskMounts, which are answered.
        reload: is given the descriptors by flag, and closes them.
        mount: gives a memory file by name; raises VaultUnavailable.
    """

    def __init__(
        self,
        sock: socket.socket,
        reload: Callable[[dict[str, int]], None],
        mount: Callable[[AskMounts], Awaitable[dict[str, int]]],
    ) -> None:
        self._sock, self._reload, self._mount = sock, reload, mount
        self._answers: set[asyncio.Task[None]] = set()
        self._handed: dict[str, int] = {}
        self._loop = asyncio.get_running_loop()
        sock.setblocking(False)
        self._loop.add_reader(sock.fileno(), self._on_readable)

    def close(self) -> None:
        """Hear no more; harmless twice."""
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()
        for answer in self._answers:
            answer.cancel()
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
        elif isinstance(message, AskMounts):
            answer = self._loop.create_task(self._answer(message))  # it asks for no more jails than may live
            self._answers.add(answer)
            answer.add_done_callback(self._answers.discard)
        elif isinstance(message, Reload):
            handed, self._handed = self._handed, {}
            self._reload(handed)

    async def _answer(self, question: AskMounts) -> None:
        files: dict[str, int] = {}
        answer: MountsGiven | MountsRefused
        try:
            files = await self._mount(question)
            answer = MountsGiven(question.request, tuple(files))
        except (VaultUnavailable, OSError) as error:
            answer = MountsRefused(question.request, str(error)[:1_000])
        try:
            send_message(self._sock, answer, more=tuple(files.values()))
        except OSError as error:
            # the spawner gives up waiting, and says so to whoever wanted the jail
            _log.error("mounts_not_sent", user=question.user, error=str(error))
        finally:
            for fd in files.values():
                os.close(fd)

    def _drop(self, name: str) -> None:
        if (fd := self._handed.pop(name, None)) is not None:
            with contextlib.suppress(OSError):
                os.close(fd)

    def _forget(self) -> None:
        for name in list(self._handed):
            self._drop(name)
