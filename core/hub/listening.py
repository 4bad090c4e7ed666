"""Accepting connections, up to a number: each costs memory and a descriptor before it says who it is."""

import asyncio
import socket

import structlog
from aiohttp import web

_BACKLOG = 1_024

_log = structlog.get_logger()


class _Refused(asyncio.Protocol):
    """A connection too many: closed before anything of it is read."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.abort()


class Door:
    """Where an application's connections come in.

    Args:
        runner: set up; serves and ends what was let in.
        name: for the log.
        most: connections at once; more are closed at once.
    """

    def __init__(self, runner: web.AppRunner, name: str, most: int) -> None:
        self._runner, self._name, self._most = runner, name, most
        self._full = False
        self._servers: list[asyncio.Server] = []

    async def open(self, sock: socket.socket) -> None:
        """Accept from a listening socket, which :meth:`shut` closes."""
        loop = asyncio.get_running_loop()
        self._servers.append(await loop.create_server(self._let_in, sock=sock, backlog=_BACKLOG))

    def shut(self) -> None:
        """Accept no more; what was let in goes on."""
        for server in self._servers:
            server.close()

    def _let_in(self) -> asyncio.Protocol:
        serve = self._runner.server
        assert serve is not None
        inside = len(serve.connections)
        if inside < self._most:
            # said once, and again only after it was far from full
            self._full = self._full and inside > self._most * 3 // 4
            return serve()
        if not self._full:
            self._full = True
            _log.warning("connections_refused", listener=self._name, most=self._most)
        return _Refused()
