"""http_fetch: a request to a server outside, made by the server for the agent, under its rules."""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Annotated, BinaryIO, Literal

from msgspec import Meta

from jail.peer.errors import AskFailed, ToolFailed
from jail.peer.texts import clean
from jail.peer.tools.base import Arguments, Outside, Surroundings, Tool, ToolResult
from jail.peer.tools.paths import explain, locate, open_regular
from jail.wire.schema import Header, HttpBody, HttpData, HttpFetch, HttpHead

_PIECE_BYTES = 128 << 10
_NOTE_BYTES = 2_048
_PIECE_S = 60.0
_SHOWN = ("content-type", "content-length", "location", "last-modified", "etag", "retry-after", "date")
_MAX_SHOWN = 200


class FetchArguments(Arguments, frozen=True):
    url: Annotated[str, Meta(min_length=1, max_length=8_192, description="http:// or https://, whole.")]
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] = "GET"
    headers: Annotated[
        dict[str, str],
        Meta(max_length=64, description="Headers. {{credential:NAME}} in a value stands for a credential."),
    ] = {}  # noqa: RUF012 - msgspec makes a new one each time
    body: Annotated[str, Meta(description="Text to send as the body.")] = ""
    body_file: Annotated[str, Meta(description="A file to send as the body instead.")] = ""
    save_to: Annotated[str, Meta(description="A file to write the answer's body to, of any length.")] = ""


async def _fetch(arguments: FetchArguments, around: Surroundings) -> ToolResult:
    if around.outside is None:
        raise ToolFailed("There is no way out of here.")
    if arguments.body and arguments.body_file:
        raise ToolFailed("Send either body or body_file.")
    for name, value in arguments.headers.items():
        if len(name) > 256 or len(value) > 16_384:
            raise ToolFailed("A header is too long.")
    try:
        async with asyncio.timeout(around.timeout_s):
            return await _Exchange(arguments, around, around.outside).run()
    except TimeoutError:
        return ToolResult(False, f"This took longer than {around.timeout_s:g} s.")
    except AskFailed as failed:
        if failed.failure.code == "cancelled":
            raise
        return ToolResult(False, f"The request failed ({failed.failure.code}): {failed.failure.message}.")


class _Exchange:
    """One request and its answer."""

    def __init__(self, arguments: FetchArguments, around: Surroundings, outside: Outside) -> None:
        self._arguments, self._around, self._outside = arguments, around, outside
        self._name = os.urandom(8).hex()
        self._room_bytes = around.result_bytes - _NOTE_BYTES
        self._text = bytearray()
        self._left_out = 0

    async def run(self) -> ToolResult:
        """Send, and take what comes. Raises AskFailed, ToolFailed."""
        source = self._source()
        target = self._target()
        try:
            return await self._run(source, target)
        finally:
            for file in (source, target):
                if file is not None:
                    file.close()

    async def _run(self, source: BinaryIO | None, target: BinaryIO | None) -> ToolResult:
        pieces = _pieces(source, self._arguments.body.encode())
        first = await anext(pieces, b"")
        second = await anext(pieces, None)
        headers = tuple(Header(name, value) for name, value in self._arguments.headers.items())
        ask = HttpFetch(
            self._outside.turn, self._name, self._arguments.method, self._arguments.url, headers, first,
            second is not None,
        )  # fmt: skip
        async with await self._outside.stream(ask, self._around.timeout_s) as request:
            sending = asyncio.ensure_future(self._send(second, pieces))
            head: HttpHead | None = None
            try:
                async for item in request:
                    if isinstance(item, HttpHead):
                        head = item
                    elif isinstance(item, HttpData):
                        await self._take(item.data, target)
                end = await request.result()
            finally:
                sending.cancel()
                # its failure is the fetch's, which says more
                await asyncio.gather(sending, return_exceptions=True)
        if head is None:
            raise ToolFailed("The answer had no beginning.")
        return self._result(head, end.body_bytes)

    async def _send(self, piece: bytes | None, rest: AsyncIterator[bytes]) -> None:
        while piece is not None:
            following = await anext(rest, None)
            ask = HttpBody(self._outside.turn, self._name, piece, following is None)
            await self._outside.ask(ask, _PIECE_S)
            piece = following

    async def _take(self, data: bytes, target: BinaryIO | None) -> None:
        if target is not None:
            await asyncio.to_thread(target.write, data)
            return
        room = max(0, self._room_bytes - len(self._text))
        self._text += data[:room]
        self._left_out += len(data) - min(room, len(data))

    def _result(self, head: HttpHead, body_bytes: int) -> ToolResult:
        shown = [
            f"{header.name}: {header.value[:_MAX_SHOWN]}"
            for header in head.headers
            if header.name.lower() in _SHOWN
        ]
        lines = [f"HTTP {head.status} from {head.url[:_MAX_SHOWN]}", *shown, ""]
        if self._arguments.save_to:
            lines.append(f"[{body_bytes} bytes written to {clean(self._arguments.save_to)}]")
        elif b"\0" in self._text:
            lines.append(f"[{body_bytes} bytes that are no text; save_to writes them to a file]")
        else:
            lines.append(self._text.decode("utf-8", "replace"))
            if self._left_out:
                lines.append(f"[{self._left_out} bytes more are left out; save_to writes all to a file]")
        return ToolResult(head.status < 400, "\n".join(lines))

    def _source(self) -> BinaryIO | None:
        name = self._arguments.body_file
        return open(open_regular(locate(self._around.home, name), clean(name)), "rb") if name else None

    def _target(self) -> BinaryIO | None:
        name = self._arguments.save_to
        if not name:
            return None
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            return open(os.open(locate(self._around.home, name), flags, 0o666), "wb")
        except OSError as error:
            raise explain(error, clean(name)) from None


async def _pieces(source: BinaryIO | None, text: bytes) -> AsyncIterator[bytes]:
    if source is None:
        for at in range(0, len(text), _PIECE_BYTES):
            yield text[at : at + _PIECE_BYTES]
        return
    while data := await asyncio.to_thread(source.read, _PIECE_BYTES):
        yield data


HTTP_FETCH = Tool(
    "http_fetch",
    "Make an HTTP request. The server's rules say where it may go; redirects are followed. The answer's"
    " status, some of its headers and its text are returned.",
    FetchArguments,
    _fetch,
)
