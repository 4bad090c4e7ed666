"""One request of an agent's: policy, credentials, connection, redirects, and the answer back.

The other end may do anything, and the agent may have been talked into anything: every step has a limit
in time or bytes, each hop is decided upon afresh, and what goes back holds no value of a credential.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

import aiohttp

from core.egress.allowance import Allowance
from core.egress.decoding import Decoder, DecodingError
from core.egress.fetch_headers import from_server, size_of, to_server
from core.egress.fetch_stream import FetchError, FetchStream
from core.egress.gate import Gate
from core.egress.outside import Outside
from core.egress.placeholders import MARK, Header, PlaceholderError, has_mark
from core.egress.sending import Sent, Upload, answer_to, late
from core.egress.strike import Strike, StrikeError, strike_for
from core.egress.target import Target, TargetError, follow, parse_target
from core.egress.vault_access import VaultUnavailable
from jail.wire.schema import HttpData, HttpEnd, HttpHead

_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_AS_GET = frozenset((301, 302, 303))
_OF_BODY = frozenset(("content-type", "content-language", "content-location"))
# what a server elsewhere has no business seeing, whoever put it there
_OF_ORIGIN = frozenset(("authorization", "cookie", "proxy-authorization"))
_PIECE_BYTES = 64 << 10


class _Hop(NamedTuple):
    """What is to be sent where, placeholders not filled in yet."""

    method: str
    target: Target
    headers: Sequence[Header]
    streamed: bool
    body: bytes


class Fetch:
    """One fetch; ``run`` is called once."""

    def __init__(self, stream: FetchStream, outside: Outside) -> None:
        self._stream, self._ask, self._outside = stream, stream.ask, outside
        self._section = outside.section
        self._gate = Gate(stream.ask, outside)
        self._allowance = Allowance(
            outside.meter, stream.ask.user, lambda met: outside.limit_met(stream.ask.id, met)
        )
        self._upload = Upload(stream, outside, self._allowance)

    @property
    def moved_bytes(self) -> int:
        """Both ways, so far."""
        return self._allowance.moved

    async def run(self) -> HttpEnd:
        """Answer through the stream. Raises FetchError, whatever happens outside."""
        try:
            async with asyncio.timeout(self._section.total_s):
                return await self._run()
        except TimeoutError:
            raise late(f"the request took longer than {self._section.total_s:g} s") from None
        except (TargetError, PlaceholderError) as error:
            raise FetchError("invalid", str(error)) from None
        except VaultUnavailable as error:
            raise FetchError("unavailable", str(error)) from None
        except (DecodingError, StrikeError) as error:
            raise FetchError("limit", str(error)) from None
        except aiohttp.ClientError as error:
            # "from None": these carry our request, and its headers a credential
            raise (self._upload.broken or _client_error(error)) from None
        finally:
            self._allowance.settle()

    async def _run(self) -> HttpEnd:
        hop = self._first_hop()
        await self._allowance.begin()
        for _ in range(self._section.max_redirects + 1):
            addresses = await self._gate.addresses(hop.method, hop.target)
            request = await self._gate.fill(hop.target, hop.headers)
            strike = strike_for(self._gate.values)
            sent = Sent(hop.method, request, hop.streamed, hop.body)
            size = len(request.target.url) + sum(len(n) + len(v) + 4 for n, v in request.headers)
            await self._allowance.take(size + (0 if hop.streamed else len(hop.body)))
            async with answer_to(sent, addresses, self._upload, self._outside) as response:
                await self._allowance.take(size_of(response.headers))
                location = response.headers.get("Location")
                if response.status not in _REDIRECTS or location is None:
                    return await self._answer(response, hop.target, strike)
                hop = _next_hop(hop, response.status, location, strike)
        raise FetchError("limit", f"more than {self._section.max_redirects} redirects")

    def _first_hop(self) -> _Hop:
        ask = self._ask
        target = parse_target(ask.url)
        headers = to_server(ask.headers, self._section.max_header_bytes)
        self._upload.check_first()
        return _Hop(ask.method, target, headers, ask.more, ask.body)

    async def _answer(self, response: aiohttp.ClientResponse, target: Target, strike: Strike) -> HttpEnd:
        section, stream = self._section, self._stream
        encodings = response.headers.getall("Content-Encoding", [])
        decoder = Decoder(",".join(encodings), section.max_answer_bytes, section.max_ratio)
        headers = from_server(response.headers, strike, section.max_header_bytes, bool(encodings))
        await stream.put(HttpHead(response.status, strike.text(target.without_query), headers))
        body = strike.stream()
        while data := await self._read(response):
            await self._allowance.take(len(data))
            for piece in decoder.feed(data):
                if clean := body.feed(piece):
                    await self._put(clean)
        decoder.finish()
        if rest := body.finish():
            await self._put(rest)
        return HttpEnd(decoder.bytes_out)

    async def _put(self, data: bytes) -> None:
        for at in range(0, len(data), _PIECE_BYTES):
            await self._stream.put(HttpData(data[at : at + _PIECE_BYTES]))

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        try:
            async with asyncio.timeout(self._section.idle_s):
                return await response.content.readany()
        except TimeoutError:
            raise late(f"the answer stalled for {self._section.idle_s:g} s") from None


def _next_hop(hop: _Hop, status: int, location: str, strike: Strike) -> _Hop:
    """Where a redirect leads (RFC 9110, 15.4); decided upon as if it were asked for afresh."""
    if strike.finds(location):
        raise FetchError("refused", "the answer redirects to a place with a credential's value in it")
    if has_mark(location):
        raise FetchError("refused", "the answer redirects to a place with a placeholder in it")
    old = hop.target
    try:
        target = follow(old, location)
    except TargetError as error:
        raise FetchError("refused", f"the answer redirects to what nothing is sent to: {error}") from None
    method, body, streamed = hop.method, hop.body, hop.streamed
    dropped: set[str] = set()
    if status in _AS_GET and method not in ("GET", "HEAD"):
        method, body, streamed = "GET", b"", False
        dropped |= _OF_BODY
    elif streamed:
        raise FetchError("upstream", "the answer redirects a streamed body: send it there at once")
    secret = {name.lower() for name, value in hop.headers if MARK in value.encode()}
    if target.origin != old.origin:
        dropped |= secret | _OF_ORIGIN
    # within the origin the gate looks again: a path that a credential is not bound to is refused there
    headers = [(n, v) for n, v in hop.headers if n.lower() not in dropped]
    return _Hop(method, target, headers, streamed, body)


def _client_error(error: aiohttp.ClientError) -> FetchError:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return FetchError("upstream", "the server's TLS certificate does not verify")
    if isinstance(error, aiohttp.ClientConnectorError):
        return FetchError("upstream", "the server could not be reached")
    if isinstance(
        error, aiohttp.ClientPayloadError | aiohttp.ServerDisconnectedError | aiohttp.ClientOSError
    ):
        return FetchError("upstream", "the server closed the connection too early")
    return FetchError("upstream", "the server's answer is not as HTTP has it, or its headers are too long")
