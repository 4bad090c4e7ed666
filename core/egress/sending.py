"""One request sent to addresses that were checked, its body in pieces, and the beginning of its answer."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import aiohttp
from yarl import URL

from core.egress.addresses import Address
from core.egress.allowance import Allowance
from core.egress.dialing import check_peer, session_to
from core.egress.fetch_headers import MAX_HEADERS
from core.egress.fetch_stream import FetchError, FetchStream
from core.egress.outside import Outside
from core.egress.placeholders import BodyGuard, Filled, PlaceholderError


class Sent(NamedTuple):
    """What goes out. ``streamed``: the body comes in pieces, once; else it is ``body``."""

    method: str
    request: Filled
    streamed: bool
    body: bytes


class Upload:
    """A fetch's body on its way out, and the clock that runs meanwhile."""

    def __init__(self, stream: FetchStream, outside: Outside, allowance: Allowance) -> None:
        self._stream, self._section, self._allowance = stream, outside.section, allowance
        self._guard = BodyGuard()
        self._clock: asyncio.Timeout | None = None
        self.broken: FetchError | None = None
        """Why the body ended, which aiohttp does not tell."""

    def check_first(self) -> None:
        """Look at the piece that came with the request. Raises PlaceholderError."""
        self._guard.check(self._stream.ask.body)

    @asynccontextmanager
    async def clock(self, limit_s: float) -> AsyncIterator[None]:
        """TimeoutError where the answer does not begin in time; a long upload moves the time on."""
        async with asyncio.timeout(limit_s) as self._clock:
            try:
                yield
            finally:
                self._clock = None

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body. Raises FetchError, PlaceholderError."""
        try:
            async for piece in self._checked():
                yield piece
        except FetchError as error:
            self.broken = error
            raise
        except PlaceholderError as error:
            self.broken = FetchError("invalid", str(error))
            raise

    async def _checked(self) -> AsyncIterator[bytes]:
        sent, first, section = 0, bool(self._stream.ask.body), self._section
        self._within(None)
        async for piece in self._stream.body():
            if not first:
                self._guard.check(piece)  # the first one was checked before anything was sent
            first = False
            sent += len(piece)
            if sent > section.max_request_bytes:
                raise FetchError("limit", f"the body is longer than {section.max_request_bytes} bytes")
            await self._allowance.take(len(piece))
            self._within(section.idle_s)  # for the server to take it
            yield piece
            self._within(None)  # for the jail to send the next, which has a limit of its own
        self._within(section.first_byte_s)

    def _within(self, limit_s: float | None) -> None:
        if self._clock is not None and not self._clock.expired():
            loop = asyncio.get_running_loop()
            self._clock.reschedule(None if limit_s is None else loop.time() + limit_s)


@asynccontextmanager
async def answer_to(
    sent: Sent, addresses: Sequence[Address], upload: Upload, outside: Outside
) -> AsyncIterator[aiohttp.ClientResponse]:
    """Send it; the answer, of which only the head has come. Raises FetchError and aiohttp.ClientError."""
    section, target = outside.section, sent.request.target
    async with session_to(target, addresses, section.connect_s, MAX_HEADERS, outside.tls) as session:
        body = upload.pieces() if sent.streamed else sent.body or None
        try:
            async with upload.clock(section.connect_s + section.first_byte_s):
                response = await session.request(
                    sent.method, URL(target.url, encoded=True), headers=sent.request.headers,
                    data=body, allow_redirects=False,
                )  # fmt: skip
        except aiohttp.ConnectionTimeoutError:
            raise late(f"no connection within {section.connect_s:g} s") from None
        except TimeoutError:
            raise late(f"no answer began within {section.first_byte_s:g} s") from None
        try:
            check_peer(response, addresses)
            yield response
        finally:
            response.close()


def late(what: str) -> FetchError:
    """The other end took too long."""
    return FetchError("upstream_timeout", f"{what}: try again later, or ask for less")
