"""From where a request comes and which web pages may make it: proxies, login limits, origins.

One of these serves both listeners. Its configuration may be replaced while it serves.
"""

import ipaddress
import math
import re
import time
from collections.abc import Callable, Iterable

import structlog
from aiohttp import web

from core.config import AccessSection
from core.hub.errors import HubError
from core.hub.logins import FailedLogins
from core.metrics import Metrics
from core.vault.tokens import public_id

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_MAX_HOPS = 32
_HEADER_NAMES = re.compile(r"[A-Za-z0-9-]+(?:\s*,\s*[A-Za-z0-9-]+){0,63}")
_METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE"
_PREFLIGHT_S = "600"
_EXPOSED = (
    "X-Request-Id, Request-Id, X-Certosa-Turn, X-Certosa-Session, X-Certosa-Notice, Retry-After, ETag,"
    " Content-Range, Content-Disposition, x-should-retry"
)

_log = structlog.get_logger()


class Access:
    """Used on the hub's loop. ``login_failed`` is told the address and public id of each wrong token."""

    def __init__(
        self, section: AccessSection, login_failed: Callable[[str, str], None], metrics: Metrics
    ) -> None:
        self._login_failed, self._metrics = login_failed, metrics
        self._logins = FailedLogins(section)
        self.apply(section)

    def apply(self, section: AccessSection) -> None:
        """Use another configuration; what failed before stays counted."""
        self._section = section
        self._logins.limits = section
        self._trusted: list[_Network] = [ipaddress.ip_network(at) for at in section.trusted_proxies]

    # -- where from --------------------------------------------------------------------------------

    def address(self, request: web.Request) -> str:
        """The client's address: the connection's, or what trusted proxies say it is.

        Read from the right: each trusted proxy appended whom it saw, and what stands left of the
        first address that is no trusted proxy, the client may have written itself.
        """
        remote = request.remote or ""
        if not self._is_trusted(remote):
            return remote
        hops = [
            hop.strip() for line in request.headers.getall("X-Forwarded-For", ()) for hop in line.split(",")
        ]
        for hop in reversed(hops[-_MAX_HOPS:]):
            parsed = _parsed(hop)
            if parsed is None:
                return remote
            remote = str(parsed)
            if not self._is_trusted(remote):
                return remote
        return remote

    def _is_trusted(self, text: str) -> bool:
        address = _parsed(text) if self._trusted else None
        return address is not None and any(
            address in network for network in self._trusted if network.version == address.version
        )

    # -- wrong tokens --------------------------------------------------------------------------------

    def check(self, request: web.Request, token: str) -> None:
        """HubError 429 while this client has to wait."""
        wait_s = self._logins.wait_s(self.address(request), token, time.monotonic())
        if wait_s > 0:
            self._metrics.login_failed("waiting")
            raise _wait(wait_s)

    def failed(self, request: web.Request, token: str) -> None:
        """A token was wrong."""
        address = self.address(request)
        wait_s = self._logins.failed(address, token, time.monotonic())
        # the id is public; that of a real token says whose was tried
        self._metrics.login_failed("wrong")
        self._login_failed(address, public_id(token) or "")
        _log.warning(
            "login_failed", address=address, token_id=public_id(token) or "", wait_s=round(wait_s, 3)
        )

    def succeeded(self, request: web.Request, token: str) -> None:
        """A token was right."""
        self._logins.succeeded(self.address(request), token)

    # -- web pages -----------------------------------------------------------------------------------

    def preflight(self, request: web.Request) -> web.Response | None:
        """The answer to a browser's question whether a page may ask (Fetch standard); None: it is none."""
        wanted = request.headers.get("Access-Control-Request-Method")
        if request.method != "OPTIONS" or wanted is None or "Origin" not in request.headers:
            return None
        answer = web.Response(status=204)
        if self._allowed(request) is None:
            return answer  # without the headers: the browser refuses in its page's name
        answer.headers["Access-Control-Allow-Methods"] = _METHODS
        asked = request.headers.get("Access-Control-Request-Headers", "")
        if _HEADER_NAMES.fullmatch(asked.strip()):
            # named one by one: * would not stand for Authorization
            answer.headers["Access-Control-Allow-Headers"] = asked.strip()
        answer.headers["Access-Control-Max-Age"] = _PREFLIGHT_S
        return answer

    def add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        """What an answer says to a page of a configured origin."""
        if not self._section.origins:
            return
        response.headers.add("Vary", "Origin")
        allowed = self._allowed(request)
        if allowed is None:
            return
        response.headers["Access-Control-Allow-Origin"] = allowed
        if self._section.credentials:
            response.headers["Access-Control-Allow-Credentials"] = "true"
        if request.method != "OPTIONS":
            response.headers["Access-Control-Expose-Headers"] = _EXPOSED

    def allows_origin(self, origin: str) -> bool:
        """Whether pages of this origin may call."""
        return _in(origin, self._section.origins)

    def _allowed(self, request: web.Request) -> str | None:
        origin = request.headers.get("Origin")
        if origin is None or not self.allows_origin(origin):
            return None
        return "*" if "*" in self._section.origins else origin


ACCESS: web.AppKey[Access] = web.AppKey("access", Access)


def _in(origin: str, origins: Iterable[str]) -> bool:
    return any(known in ("*", origin) for known in origins)


def _parsed(text: str) -> _Address | None:
    try:
        found = ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return None
    # a v6 socket shows v4 clients so
    return found.ipv4_mapped or found if found.version == 6 else found


def _wait(wait_s: float) -> HubError:
    return HubError(
        429,
        f"too many wrong tokens came from your address: wait {math.ceil(wait_s)} s. A token that this"
        " address used before is still let in",
        "too_many_failures",
        retry_after_s=math.ceil(wait_s),
    )
