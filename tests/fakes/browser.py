"""What a page's script can do: a WebSocket, event streams by fetch, and a connection that breaks.

Plain bytes on a socket, so that a connection can be cut in the middle of a frame. A page gives its
token as a subprotocol, since it has no say in a WebSocket's headers.
"""

import asyncio
import base64
import json
import os
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

WAIT_S = 20.0
Json = dict[str, Any]


class CutError(Exception):
    """The connection broke, by the test's will or the server's."""


class RefusedError(Exception):
    """The server answered with an error; ``body`` is its JSON."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"{status} {body!r}")
        self.status = status
        self.body: Json = json.loads(body) if body else {}

    @property
    def code(self) -> str:
        """The error's."""
        return str(self.body["error"]["code"])


@dataclass(frozen=True)
class Closed:
    """The server closed a WebSocket."""

    code: int
    reason: str


class _Wire:
    """A connection that breaks once ``budget`` bytes were read; None: never."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, budget: int | None
    ) -> None:
        self._reader, self.writer, self._budget = reader, writer, budget

    async def read(self, size: int) -> bytes:
        if self._budget is not None and size > self._budget:
            self.cut()
            raise CutError
        try:
            async with asyncio.timeout(WAIT_S):
                data = await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise CutError from None
        if self._budget is not None:
            self._budget -= size
        return data

    async def line(self) -> bytes:
        data = b""
        while not data.endswith(b"\r\n"):
            data += await self.read(1)
        return data[:-2]

    async def head(self) -> tuple[int, dict[str, str]]:
        status = int((await self.line()).split()[1])
        headers = {}
        while line := await self.line():
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        return status, headers

    def cut(self) -> None:
        self.writer.transport.abort()


class PageSocket:
    """An open WebSocket (RFC 6455)."""

    def __init__(self, wire: _Wire, headers: dict[str, str]) -> None:
        self._wire = wire
        self.headers = headers
        self.pings = self.pongs = 0
        self.answers_pings = True

    async def read(self) -> Json | Closed:
        """The next message. CutError."""
        while True:
            first, size = await self._wire.read(2)
            assert not size & 0x80, "a server's frames are not masked"
            if size == 126:
                (size,) = struct.unpack("!H", await self._wire.read(2))
            elif size == 127:
                (size,) = struct.unpack("!Q", await self._wire.read(8))
            data = await self._wire.read(size)
            assert first & 0x80, "one frame a message"
            match first & 0x0F:
                case 1:
                    message: Json = json.loads(data)
                    return message
                case 8:
                    return Closed(struct.unpack("!H", data[:2])[0], data[2:].decode())
                case 9:
                    self.pings += 1
                    if self.answers_pings:
                        self.send_frame(0x0A, data)
                case 10:
                    self.pongs += 1
                case other:
                    raise AssertionError(f"unexpected opcode {other}")

    async def until(self, *types: str) -> list[Json]:
        """Messages up to and with the first of one of these types."""
        found: list[Json] = []
        while not found or found[-1]["type"] not in types:
            message = await self.read()
            assert isinstance(message, dict), message
            found.append(message)
        return found

    async def closed(self) -> Closed:
        """The close, whatever comes before it."""
        while True:
            message = await self.read()
            if isinstance(message, Closed):
                return message

    async def ask(self, type: str, **fields: Any) -> Json:
        """A request and what answers it; events that come before are dropped."""
        self.send(type=type, ref="r", **fields)
        while True:
            message = await self.read()
            assert isinstance(message, dict), message
            if message.get("ref") == "r":
                return message

    def send(self, **message: Any) -> None:
        self.send_frame(1, json.dumps(message).encode())

    def send_frame(self, opcode: int, data: bytes, last: bool = True) -> None:
        """A whole message, or a piece of one, masked as a client's have to be."""
        self.send_bytes(frame(opcode, data, last))

    def send_bytes(self, data: bytes) -> None:
        """Bytes as they are."""
        self._wire.writer.write(data)

    def cut(self) -> None:
        """Break the connection."""
        self._wire.cut()


def frame(opcode: int, data: bytes, last: bool = True) -> bytes:
    """A client's frame (RFC 6455, 5.2)."""
    size = len(data)
    first = opcode | (0x80 if last else 0)
    if size < 126:
        head = struct.pack("!BB", first, 0x80 | size)
    elif size < 1 << 16:
        head = struct.pack("!BBH", first, 0x80 | 126, size)
    else:
        head = struct.pack("!BBQ", first, 0x80 | 127, size)
    mask = os.urandom(4)
    return head + mask + bytes(byte ^ mask[i & 3] for i, byte in enumerate(data))


class PageStream:
    """An open event stream (HTML standard, 9.2), in chunks of HTTP's."""

    def __init__(self, wire: _Wire) -> None:
        self._wire = wire
        self._text = b""

    async def read(self) -> tuple[int | None, Json] | None:
        """The next event with its id, None at the end. CutError."""
        while b"\n\n" not in self._text:
            size = int(await self._wire.line(), 16)
            self._text += await self._wire.read(size)
            await self._wire.line()
            if not size:
                return None
        event, _, self._text = self._text.partition(b"\n\n")
        fields = dict(line.split(b": ", 1) for line in event.split(b"\n") if line[:1] != b":")
        if b"data" not in fields:
            return await self.read()
        assert b"event" not in fields
        return int(fields[b"id"]) if b"id" in fields else None, json.loads(fields[b"data"])

    async def rest(self) -> list[Json]:
        """All to the end."""
        found = []
        while (event := await self.read()) is not None:
            found.append(event[1])
        return found

    def cut(self) -> None:
        """Break the connection."""
        self._wire.cut()


class Browser:
    """A page that was loaded from the server itself, or from ``origin``.

    ``receive_bytes``: how much the kernel takes for it that it has not read.
    """

    def __init__(
        self, url: str, token: str, origin: str | None = None, receive_bytes: int | None = None
    ) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self._address = host, int(port)
        self._host = f"{host}:{port}"
        self._token = token
        self._origin = url if origin is None else origin
        self._receive_bytes = receive_bytes

    @asynccontextmanager
    async def socket(
        self, budget: int | None = None, headers: Mapping[str, str] | None = None, early: bytes = b""
    ) -> AsyncIterator[PageSocket]:
        """A WebSocket, whose connection breaks after ``budget`` bytes. RefusedError, CutError.

        ``headers`` replace a page's own; an empty one is left out. ``early`` is sent with the handshake.
        """
        values = {
            "Host": self._host,
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
            "Sec-WebSocket-Protocol": f"certosa.v1, certosa.bearer.{self._token}",
            "Origin": self._origin,
            **(headers or {}),
        }
        async with self._connected(budget) as wire:
            self._write(wire, "GET", "/v1/ws", values)
            wire.writer.write(early)
            status, answered = await wire.head()
            if status != 101:
                raise RefusedError(status, await wire.read(int(answered.get("content-length", "0"))))
            yield PageSocket(wire, answered)

    @asynccontextmanager
    async def stream(
        self, session: str, query: str = "", last_event_id: int | None = None, budget: int | None = None
    ) -> AsyncIterator[PageStream]:
        """An event stream. RefusedError, with status 204 too, CutError."""
        values = {"Host": self._host, "Authorization": f"Bearer {self._token}", "Origin": self._origin}
        if last_event_id is not None:
            values["Last-Event-ID"] = str(last_event_id)
        async with self._connected(budget) as wire:
            self._write(wire, "GET", f"/v1/sessions/{session}/events{query}", values)
            status, answered = await wire.head()
            if status != 200:
                raise RefusedError(status, await wire.read(int(answered.get("content-length", "0"))))
            assert answered["content-type"].startswith("text/event-stream")
            yield PageStream(wire)

    async def call(self, method: str, path: str, body: Json | None = None) -> tuple[int, Json]:
        """A request with JSON both ways."""
        data = b"" if body is None else json.dumps(body).encode()
        values = {
            "Host": self._host, "Authorization": f"Bearer {self._token}", "Content-Length": str(len(data)),
        }  # fmt: skip
        async with self._connected(None) as wire:
            self._write(wire, method, path, values)
            wire.writer.write(data)
            status, answered = await wire.head()
            return status, json.loads(await wire.read(int(answered["content-length"])))

    @asynccontextmanager
    async def _connected(self, budget: int | None) -> AsyncIterator[_Wire]:
        sock = socket.socket()
        sock.setblocking(False)
        try:
            if self._receive_bytes is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_bytes)
            await asyncio.get_running_loop().sock_connect(sock, self._address)
            reader, writer = await asyncio.open_connection(sock=sock)
        except BaseException:
            sock.close()  # a test may lose its patience before there is a connection
            raise
        wire = _Wire(reader, writer, budget)
        try:
            yield wire
        finally:
            wire.cut()

    def _write(self, wire: _Wire, method: str, path: str, headers: dict[str, str]) -> None:
        lines = [
            f"{method} {path} HTTP/1.1",
            *(f"{name}: {value}" for name, value in headers.items() if value),
        ]
        wire.writer.write("\r\n".join([*lines, "", ""]).encode())
