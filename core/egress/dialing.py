"""A connection to an address that was looked up once and checked, for one request.

Nothing is kept or shared: a connection that was allowed for one user is no other's, and a name that
leads elsewhere a moment later leads nowhere new.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from core.egress.addresses import Address, Network, parse_addresses, why_not
from core.egress.fetch_stream import FetchError
from core.egress.resolving import Resolve
from core.egress.target import Target

_READ_BUFFER_BYTES = 64 << 10
_MAX_ADDRESSES = 32
_MAX_LINE_BYTES = 16_000


class _Pinned(AbstractResolver):
    """Answers for one host with what was checked, and for no other."""

    def __init__(self, host: str, addresses: Sequence[Address]) -> None:
        self._host, self._addresses = host, addresses

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_UNSPEC,  # noqa: ARG002
    ) -> list[ResolveResult]:
        """aiohttp's hook."""
        if host != self._host:
            raise OSError(f"{host} was not checked")
        return [
            ResolveResult(
                hostname=host, host=str(address), port=port,
                family=socket.AF_INET6 if address.version == 6 else socket.AF_INET,
                proto=0, flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in self._addresses
        ]  # fmt: skip

    async def close(self) -> None:
        """Nothing is held."""


async def checked_addresses(
    user: str, target: Target, opened: Sequence[Network], look_up: Resolve, timeout_s: float
) -> list[Address]:
    """Where a target may be connected to, looked up for ``user``.

    Raises FetchError where any of its addresses is closed.

    All of them: a name that leads to a public and to a private address is one that means ill.
    """
    try:
        async with asyncio.timeout(timeout_s):
            texts = await look_up(user, target.host, target.port)
        found = parse_addresses(texts[:_MAX_ADDRESSES])
    except TimeoutError:
        raise FetchError("upstream_timeout", f"the name did not resolve within {timeout_s:g} s") from None
    except (OSError, ValueError, UnicodeError):
        raise FetchError("upstream", "the name could not be resolved") from None
    if not found:
        raise FetchError("upstream", "the name could not be resolved")
    for address in found:
        if reason := why_not(address, opened):
            raise FetchError("refused", f"this place may not be connected to: {reason}")
    return found


@asynccontextmanager
async def session_to(
    target: Target,
    addresses: Sequence[Address],
    connect_s: float,
    max_headers: int,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[aiohttp.ClientSession]:
    """A session that reaches ``addresses`` alone, with the target's name in Host and TLS."""
    connector = aiohttp.TCPConnector(
        resolver=_Pinned(target.host, addresses),
        use_dns_cache=False,
        force_close=True,
        limit=1,
        ssl=tls or True,
    )
    async with aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_s),
        auto_decompress=False,
        trust_env=False,
        read_bufsize=_READ_BUFFER_BYTES,
        max_line_size=_MAX_LINE_BYTES,
        max_field_size=_MAX_LINE_BYTES,
        max_headers=max_headers,
        skip_auto_headers=("Accept", "Content-Type"),
    ) as session:
        yield session


def check_peer(response: aiohttp.ClientResponse, addresses: Sequence[Address]) -> None:
    """The address at the other end is one that was checked. Raises FetchError."""
    transport = response.connection.transport if response.connection is not None else None
    peer = transport.get_extra_info("peername") if transport is not None else None
    if peer is None:
        return  # answered and closed already
    if parse_addresses([str(peer[0])])[0] not in addresses:
        raise FetchError("internal", "the connection went to an address that was not checked")
