"""One request of an agent's: policy, credentials, connection, redirects, and the answer back.

The other end may do anything, and the agent may have been talked into anything: every step has a limit
in time or bytes, each hop is decided upon afresh, and what goes back holds no value of a credential.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import aiohttp
import structlog
from yarl import URL

from core.config import EgressRule, EgressSection
from core.egress.addresses import Address
from core.egress.decoding import Decoder, DecodingError
from core.egress.dialing import Resolve, check_peer, checked_addresses, session_to
from core.egress.fetch_headers import MAX_HEADERS, from_server, to_server
from core.egress.fetch_stream import FetchError, FetchStream
from core.egress.placeholders import BodyGuard, Filled, PlaceholderError, fill, names_in, values_of
from core.egress.policy import Policy
from core.egress.strike import StrikeError, strike_for
from core.egress.target import Target, TargetError, follow, parse_target
from core.egress.vault_access import OpenCredential, VaultUnavailable
from core.vault.cabinet import Credential
from jail.wire.schema import HttpData, HttpEnd, HttpHead

_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_AS_GET = frozenset((301, 302, 303))
_OF_BODY = frozenset(("content-type", "content-language", "content-location"))
# what a server elsewhere has no business seeing, whoever put it there
_OF_ORIGIN = frozenset(("authorization", "cookie", "proxy-authorization"))
OwnRules = Callable[[str, str], Awaitable[Sequence[EgressRule]]]
"""A user and an origin to the user's own rules."""
_log = structlog.get_logger(__name__)


class Outside(NamedTuple):
    """What a fetch needs of the process around it."""

    section: EgressSection
    policy: Policy
    credentials: OpenCredential
    rules: OwnRules
    resolve: Resolve


class _Hop(NamedTuple):
    """What is sent where; ``body`` None: nothing."""

    method: str
    request: Filled
    streamed: bool  # the body comes in pieces, and only once
    body: bytes


class Fetch:
    """One fetch; ``run`` is called once."""

    def __init__(self, stream: FetchStream, outside: Outside) -> None:
        self._stream, self._ask, self._outside = stream, stream.ask, outside
        self._section = outside.section
        self._strike = strike_for(frozenset())
        self._guard = BodyGuard()
        self._broken: FetchError | None = None  # why the body ended, which aiohttp does not tell

    async def run(self) -> HttpEnd:
        """Answer through the stream. Raises FetchError, whatever happens outside."""
        try:
            async with asyncio.timeout(self._section.total_s):
                return await self._run()
        except TimeoutError:
            raise _late(f"the request took longer than {self._section.total_s:g} s") from None
        except (TargetError, PlaceholderError) as error:
            raise FetchError("invalid", str(error)) from None
        except VaultUnavailable as error:
            raise FetchError("unavailable", str(error)) from None
        except (DecodingError, StrikeError) as error:
            raise FetchError("limit", str(error)) from None
        except aiohttp.ClientError as error:
            # "from None": these carry our request, and its headers a credential
            raise (self._broken or _client_error(error)) from None

    async def _run(self) -> HttpEnd:
        hop, credentials = await self._first_hop()
        for _ in range(self._section.max_redirects + 1):
            async with self._sent(hop) as response:
                location = response.headers.get("Location")
                if response.status not in _REDIRECTS or location is None:
                    return await self._answer(response, hop.request.target)
                hop = self._next_hop(hop, response.status, location, credentials)
        raise FetchError("limit", f"more than {self._section.max_redirects} redirects")

    async def _first_hop(self) -> tuple[_Hop, list[Credential]]:
        ask = self._ask
        target = parse_target(ask.url)
        headers = to_server(ask.headers, self._section.max_header_bytes)
        self._guard.check(ask.body)
        credentials = [await self._open(name) for name in names_in(target, headers)]
        if credentials and any(name.lower() == "range" for name, _ in headers):
            # the parts of a value in several answers would be no value in any of them
            raise PlaceholderError("a request with a credential asks for no Range")
        self._strike = strike_for(values_of(credentials))
        return _Hop(ask.method, fill(target, headers, credentials), ask.more, ask.body), credentials

    async def _open(self, name: str) -> Credential:
        found = await self._outside.credentials(self._ask.user, name) if ":" not in name else None
        if found is None:
            raise PlaceholderError(f"there is no credential {name!r}: `certosa credential list` shows yours")
        return found

    def _next_hop(self, hop: _Hop, status: int, location: str, credentials: Sequence[Credential]) -> _Hop:
        """Where a redirect leads (RFC 9110, 15.4); decided upon as if it were asked for afresh."""
        if self._strike.finds(location):
            raise FetchError("refused", "the answer redirects to a place with a credential's value in it")
        old, target = hop.request.target, follow(hop.request.target, location)
        names_in(target, ())  # refuses placeholders that a server wrote
        if "{{credential" in (target.query or ""):
            raise FetchError("refused", "the answer redirects to a place with a placeholder in it")
        method, body, streamed = hop.method, hop.body, hop.streamed
        dropped: set[str] = set()
        if status in _AS_GET and method not in ("GET", "HEAD"):
            method, body, streamed = "GET", b"", False
            dropped |= _OF_BODY
        elif streamed:
            raise FetchError("upstream", "the answer redirects a streamed body: send it there at once")
        if target.origin != old.origin:
            dropped |= hop.request.secret_headers | _OF_ORIGIN
        elif not all(target.is_below(credential.terms.path) for credential in credentials):
            dropped |= hop.request.secret_headers
        headers = tuple((n, v) for n, v in hop.request.headers if n.lower() not in dropped)
        return _Hop(method, Filled(target, headers, hop.request.secret_headers - dropped), streamed, body)

    # -- one hop ------------------------------------------------------------------------------------

    async def _allowed(self, method: str, target: Target) -> list[Address]:
        """The addresses a hop may connect to. Raises FetchError where policy or address refuse it."""
        ask = self._ask
        own = await self._outside.rules(ask.user, ask.origin)
        decision = self._outside.policy.decide(ask.user, method, target, own)
        log = _log.bind(
            user=ask.user, origin=ask.origin, turn=ask.turn, method=method, host=target.host, port=target.port
        )
        if not decision.allowed:
            log.info("egress_refused", reason="policy")
            raise FetchError("refused", decision.why)
        try:
            addresses = await checked_addresses(
                target, decision.networks, self._outside.resolve, self._section.connect_s
            )
        except FetchError as error:
            log.info("egress_refused", reason="address" if error.failure.code == "refused" else "name")
            raise
        log.info("egress_allowed", address=str(addresses[0]))
        return addresses

    @asynccontextmanager
    async def _sent(self, hop: _Hop) -> AsyncIterator[aiohttp.ClientResponse]:
        section, target = self._section, hop.request.target
        addresses = await self._allowed(hop.method, target)
        async with session_to(target, addresses, section.connect_s, MAX_HEADERS) as session:
            sending = asyncio.ensure_future(
                session.request(
                    hop.method, URL(target.url, encoded=True), headers=hop.request.headers,
                    data=self._body(hop), allow_redirects=False,
                )
            )  # fmt: skip
            try:
                # a long upload is no silence of the server's: the clock starts when it has been sent
                limit_s = None if hop.streamed else section.connect_s + section.first_byte_s
                async with asyncio.timeout(limit_s):
                    response = await sending
            except aiohttp.ConnectionTimeoutError:
                raise _late(f"no connection within {section.connect_s:g} s") from None
            except TimeoutError:
                raise _late(f"no answer began within {section.first_byte_s:g} s") from None
            finally:
                sending.cancel()
            try:
                check_peer(response, addresses)
                yield response
            finally:
                response.close()

    def _body(self, hop: _Hop) -> AsyncIterator[bytes] | bytes | None:
        return self._told_pieces() if hop.streamed else hop.body or None

    async def _told_pieces(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._pieces():
                yield piece
        except FetchError as error:
            self._broken = error
            raise
        except PlaceholderError as error:
            self._broken = FetchError("invalid", str(error))
            raise

    async def _pieces(self) -> AsyncIterator[bytes]:
        sent, first = 0, True
        async for piece in self._stream.body():
            if not (first and self._ask.body):
                self._guard.check(piece)  # the first one was checked before anything was sent
            first = False
            sent += len(piece)
            if sent > self._section.max_request_bytes:
                raise FetchError("limit", f"the body is longer than {self._section.max_request_bytes} bytes")
            yield piece

    async def _answer(self, response: aiohttp.ClientResponse, target: Target) -> HttpEnd:
        section, stream = self._section, self._stream
        encodings = response.headers.getall("Content-Encoding", [])
        decoder = Decoder(",".join(encodings), section.max_answer_bytes, section.max_ratio)
        headers = from_server(response.headers, self._strike, section.max_header_bytes, bool(encodings))
        url = self._strike.text(target.without_query)
        await stream.put(HttpHead(response.status, url, headers))
        body = self._strike.stream()
        while data := await self._read(response):
            for piece in decoder.feed(data):
                if clean := body.feed(piece):
                    await self._put(clean)
        decoder.finish()
        if rest := body.finish():
            await self._put(rest)
        return HttpEnd(decoder.bytes_out)

    async def _put(self, data: bytes) -> None:
        size = 64 << 10
        for at in range(0, len(data), size):
            await self._stream.put(HttpData(data[at : at + size]))

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        try:
            async with asyncio.timeout(self._section.idle_s):
                return await response.content.readany()
        except TimeoutError:
            raise _late(f"the answer stalled for {self._section.idle_s:g} s") from None


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


def _late(what: str) -> FetchError:
    return FetchError("upstream_timeout", f"{what}: try again later, or ask for less")
