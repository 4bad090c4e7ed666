"""Who may open a WebSocket: the origin of its page, and the token, which a browser cannot put in a header.

A token never stands in a URL, which logs and histories keep.
"""

import re
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from aiohttp import web

from core.hub.errors import HubError, invalid

PROTOCOL = "certosa.v1"
_BEARER_PREFIX = "certosa.bearer."
_DEFAULT_PORTS = {"http": 80, "https": 443}
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,512}")  # what a subprotocol may be: RFC 9110, 5.6.2


def check_origin(origins: Sequence[str], hosts: Sequence[str], allowed: Callable[[str], bool]) -> None:
    """HubError 403 for a page of another host's, unless it is in the list.

    Without an Origin it is no browser, which is free to say what it likes anyway.

    Args:
        origins, hosts: the values of the headers Origin and Host.
        allowed: whether the operator lets pages of an origin in.
    """
    if not origins:
        return
    if len(origins) == 1 and len(hosts) == 1:
        given = _place(origins[0])
        if allowed(origins[0]) or (given is not None and _same_host(given, hosts[0])):
            return
    raise HubError(
        403,
        "pages of this origin may not connect; the operator can add it to [access] origins",
        "origin_refused",
    )


def offered_token(request: web.Request) -> str | None:
    """The token among the subprotocols that a client offers, if there is one.

    HubError 400 where ``certosa.v1`` isn't offered beside others: a browser would end the connection.
    """
    headers = request.headers.getall("Sec-WebSocket-Protocol", [])
    if not headers:
        return None
    if len(headers) > 1:
        raise invalid("the Sec-WebSocket-Protocol header came more than once", "duplicate_header")
    offered = [name.strip() for name in headers[0].split(",")]
    if PROTOCOL not in offered:
        raise invalid(f"offer the subprotocol {PROTOCOL}", "unknown_protocol", "Sec-WebSocket-Protocol")
    tokens = [name.removeprefix(_BEARER_PREFIX) for name in offered if name.startswith(_BEARER_PREFIX)]
    if len(tokens) > 1 or not all(_TOKEN.fullmatch(token) for token in tokens):
        raise invalid("one token, as certosa.bearer.TOKEN", "invalid_value", "Sec-WebSocket-Protocol")
    return tokens[0] if tokens else None


def _place(origin: str) -> tuple[str, str, int] | None:
    """Scheme, host and port (RFC 6454); None for ``null`` and what is no origin."""
    try:
        parts = urlsplit(origin.strip().lower())
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return None
    if port is None or not parts.hostname or parts.path or parts.query or parts.fragment or parts.username:
        return None
    return parts.scheme, parts.hostname, port


def _same_host(given: tuple[str, str, int], host: str) -> bool:
    # behind a proxy that ends TLS only the page knows the scheme
    scheme, name, port = given
    there = _place(f"{scheme}://{host}")
    return there is not None and there[1:] == (name, port)
