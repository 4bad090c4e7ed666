"""Accepting connections, up to a number: each costs memory and a descriptor before it says who it is."""

import asyncio
import contextlib
import socket
from collections.abc import Mapping
from functools import partial
from typing import Any

import structlog
from aiohttp import web

from core.hub.connection import Connection
from core.hub.places import Place, Places
from core.hub.tls import HANDSHAKE_S, Tls

_BATCH = 64  # accepted before others get their turn
_PAUSE_S = 1.0  # without a descriptor or memory for another connection

_log = structlog.get_logger()


class Door:
    """Where an application's connections come in.

    Args:
        runner: set up; serves and ends what was let in.
        name: for the log.
        most: connections at once, those in their TLS handshake too; for more, idle ones make room, or
            they are closed at once.
        tls: None for plain HTTP.
        options: of each connection (aiohttp's RequestHandler).
    """

    def __init__(
        self, runner: web.AppRunner, name: str, most: int, tls: Tls | None, options: Mapping[str, Any]
    ) -> None:
        self._options = options
        self._runner, self._name, self._most, self._tls = runner, name, most, tls
        self._places = Places(most)
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
                connection, peer = sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # no descriptor or no memory: those that are there need theirs to end (accept(2))
                _log.error("accept_failed", listener=self._name, error=str(error), pause_s=_PAUSE_S)
                self._loop.remove_reader(sock.fileno())
                self._loop.call_later(_PAUSE_S, self._resume, sock)
                return
            place = Place(peer[0] if isinstance(peer, tuple) else "", self._loop.time(), connection.close)
            self._say_whether_full()
            if self._places.take(place):
                connection.setblocking(False)
                task = self._loop.create_task(self._let_in(connection, place))
                place.end = partial(_cancel, task)
                self._entering.add(task)
                task.add_done_callback(partial(self._entered, connection, place))
            else:
                connection.close()

    def _entered(self, connection: socket.socket, place: Place, task: asyncio.Task[None]) -> None:
        self._entering.discard(task)
        if task.cancelled():  # perhaps before it began
            self._places.leave(place)
            connection.close()

    def _resume(self, sock: socket.socket) -> None:
        if sock in self._sockets:
            self._loop.add_reader(sock.fileno(), self._accept, sock)

    def _say_whether_full(self) -> None:
        """Once, and again only after it was far from full."""
        inside = len(self._places)
        if self._full:
            self._full = inside > self._most * 3 // 4
        elif inside >= self._most:
            self._full = True
            _log.warning("connections_full", listener=self._name, most=self._most)

    def _begin(self, place: Place) -> Connection:
        serve = self._runner.server
        assert serve is not None
        connection = Connection(serve, place, self._places.leave, **self._options)
        entered = place.end

        def end() -> None:
            entered()  # where it is still in its TLS handshake
            connection.force_close()

        place.end = end
        return connection

    async def _let_in(self, connection: socket.socket, place: Place) -> None:
        begin = partial(self._begin, place)
        try:
            if self._tls is None:
                await self._loop.connect_accepted_socket(begin, connection)
            else:
                await self._loop.connect_accepted_socket(
                    begin, connection, ssl=self._tls.context, ssl_handshake_timeout=HANDSHAKE_S
                )
        except OSError as error:
            # scanners and people who speak HTTP here; ssl's errors are OSErrors
            _log.debug("handshake_failed", listener=self._name, error=type(error).__name__)
            self._places.leave(place)
            with contextlib.suppress(OSError):
                connection.close()


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
