"""Accepting connections, up to a number: each costs memory and a descriptor before it says who it is."""

import asyncio
import contextlib
import socket
from collections.abc import Mapping
from typing import Any

import structlog
from aiohttp import web

from core.hub.connection import Connection
from core.hub.tls import HANDSHAKE_S, Tls

_BATCH = 64  # accepted before others get their turn
_PAUSE_S = 1.0  # without a descriptor or memory for another connection

_log = structlog.get_logger()


class Door:
    """Where an application's connections come in.

    Args:
        runner: set up; serves and ends what was let in.
        name: for the log.
        most: connections at once, those in their TLS handshake too; more are closed at once.
        tls: None for plain HTTP.
        options: of each connection (aiohttp's RequestHandler).
    """

    def __init__(
        self, runner: web.AppRunner, name: str, most: int, tls: Tls | None, options: Mapping[str, Any]
    ) -> None:
        self._options = options
        self._runner, self._name, self._most, self._tls = runner, name, most, tls
        self._full = False
        self._sockets: list[socket.socket] = []
        self._entering: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    def open(self, sock: socket.socket) -> None:
        """Accept from a listening socket, which :meth:`shut` closes."""
        sock.setblocking(False)
        self._sockets.append(sock)
        self._loop.add_reader(sock.fileno(), self._accept, sock)

    def shut(self) -> None:
        """Accept no more; what was let in goes on."""
        for sock in self._sockets:
            self._loop.remove_reader(sock.fileno())
            sock.close()
        self._sockets.clear()
        for task in self._entering:
            task.cancel()

    def _accept(self, sock: socket.socket) -> None:
        for _ in range(_BATCH):
            try:
                connection, _ = sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # no descriptor or no memory: those that are there need theirs to end (accept(2))
                _log.error("accept_failed", listener=self._name, error=str(error), pause_s=_PAUSE_S)
                self._loop.remove_reader(sock.fileno())
                self._loop.call_later(_PAUSE_S, self._resume, sock)
                return
            if self._has_room():
                connection.setblocking(False)
                task = self._loop.create_task(self._let_in(connection))
                self._entering.add(task)
                task.add_done_callback(self._entering.discard)
            else:
                connection.close()

    def _resume(self, sock: socket.socket) -> None:
        if sock in self._sockets:
            self._loop.add_reader(sock.fileno(), self._accept, sock)

    def _has_room(self) -> bool:
        serve = self._runner.server
        assert serve is not None
        inside = len(serve.connections) + len(self._entering)
        if inside < self._most:
            # said once, and again only after it was far from full
            self._full = self._full and inside > self._most * 3 // 4
            return True
        if not self._full:
            self._full = True
            _log.warning("connections_refused", listener=self._name, most=self._most)
        return False

    def _begin(self) -> Connection:
        serve = self._runner.server
        assert serve is not None
        return Connection(serve, loop=self._loop, **self._options)

    async def _let_in(self, connection: socket.socket) -> None:
        try:
            if self._tls is None:
                await self._loop.connect_accepted_socket(self._begin, connection)
            else:
                await self._loop.connect_accepted_socket(
                    self._begin, connection, ssl=self._tls.context, ssl_handshake_timeout=HANDSHAKE_S
                )
        except (OSError, asyncio.CancelledError) as error:
            # scanners and people who speak HTTP here; ssl's errors are OSErrors
            _log.debug("handshake_failed", listener=self._name, error=type(error).__name__)
            with contextlib.suppress(OSError):
                connection.close()
