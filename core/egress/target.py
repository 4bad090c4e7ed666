"""Where a request goes: a URL taken apart by our own strict rules, so that what was checked is what is sent.

A subset of RFC 3986: whatever two programs could read differently is refused, not mended.
"""

import ipaddress
import re
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

from core.errors import CoreError

MAX_URL_CHARACTERS = 8_192
_URL = re.compile(r"(https?)://([^/?#]*)(/[^?#]*)?(?:\?([^#]*))?(?:#.*)?", re.ASCII | re.IGNORECASE)
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"(?:{_LABEL}\.)*{_LABEL}", re.ASCII)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_UNSEEN = re.compile(r"[\x00-\x20\x7f-\x9f\ud800-\udfff\\]")
_SAFE = "/!$&'()*+,;=:@%-._~?"
_AMBIGUOUS = re.compile(r"%(?:2f|5c|00)|//", re.IGNORECASE)
_PORTS = {"http": 80, "https": 443}


class TargetError(CoreError):
    """A URL that nothing is sent to; the message says why, without the URL."""


class Target(NamedTuple):
    """An absolute URL in parts; ``query`` is None where there is no question mark."""

    scheme: str
    host: str
    """In lower case without a final dot, or a canonical address; IPv6 without brackets."""
    port: int
    path: str
    query: str | None

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port (RFC 6454)."""
        return self.scheme, self.host, self.port

    @property
    def url(self) -> str:
        """The URL as it is sent."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        query = "" if self.query is None else f"?{self.query}"
        return f"{self.scheme}://{host}{port}{self.path}{query}"

    @property
    def without_query(self) -> str:
        """The URL for people and logs: a query may hold anything."""
        return self._replace(query=None).url

    def is_below(self, prefix: str) -> bool:
        """Whether the path is ``prefix`` or below it, in whole segments.

        A path with encoded slashes or empty segments is below ``/`` alone: servers differ on what it is.
        """
        if prefix == "/":
            return True
        # a server may decode what need not be encoded: %61 is a
        path = unquote_to_bytes(self.path).decode("utf-8", "replace")
        if _AMBIGUOUS.search(self.path):
            return False
        return path == prefix or path.startswith(prefix if prefix.endswith("/") else prefix + "/")


def parse_target(url: str) -> Target:
    """Take a URL apart. Raises TargetError."""
    if len(url) > MAX_URL_CHARACTERS:
        raise TargetError(f"the URL is longer than {MAX_URL_CHARACTERS} characters")
    if _UNSEEN.search(url):
        raise TargetError("the URL has spaces, control characters or backslashes in it")
    found = _URL.fullmatch(url)
    if found is None:
        raise TargetError("the URL has to begin with http:// or https:// and a host")
    scheme = found[1].lower()
    host, port = _authority(found[2], _PORTS[scheme])
    return Target(scheme, host, port, _path(found[3] or "/"), _query(found[4]))


def follow(base: Target, location: str) -> Target:
    """Where a Location leads from ``base`` (RFC 9110, 10.2.2). Raises TargetError."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", location):
        return parse_target(location)
    if location.startswith("//"):
        return parse_target(f"{base.scheme}:{location}")
    root = base._replace(path="/", query=None).url.removesuffix("/")
    if location.startswith("/"):
        return parse_target(root + location)
    if location.startswith("?"):
        return parse_target(root + base.path + location)
    if not location or location.startswith("#"):
        return base
    return parse_target(f"{root}{base.path.rpartition('/')[0]}/{_undotted(location)}")


def _undotted(location: str) -> str:
    if location.startswith("./"):
        return location[2:]
    return location


def _authority(text: str, default_port: int) -> tuple[str, int]:
    if "@" in text:
        raise TargetError("the URL has a user's name or a password in it; use a credential")
    if text.startswith("["):
        literal, bracket, rest = text[1:].partition("]")
        if not bracket:
            raise TargetError("the URL's address has no closing bracket")
        host = _ipv6(literal)
    else:
        literal, colon, digits = text.partition(":")
        host, rest = _host(literal), colon + digits
    if not rest:
        return host, default_port
    digits = rest[1:]
    if rest[0] != ":" or not (digits.isascii() and digits.isdigit() and 1 <= int(digits[:6]) <= 65_535):
        raise TargetError("the URL's port is not a number from 1 to 65535")
    return host, int(digits)


def _host(text: str) -> str:
    host = text.lower().removesuffix(".")
    if not host or len(host) > 253:
        raise TargetError("the URL has no host")
    last = host.rpartition(".")[2]
    if _NUMBER.fullmatch(last):
        # one number, octal, hexadecimal: forms of an address that only some programs read as one
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError:
            raise TargetError("the URL's address is not four decimal numbers") from None
    if _NAME.fullmatch(host) is None:
        raise TargetError("the URL's host is not a name; write an international one as xn--...")
    return host


def _ipv6(text: str) -> str:
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        raise TargetError("the URL's address is not an IPv6 address") from None
    if address.scope_id is not None:
        raise TargetError("the URL's address names an interface of the server")
    return str(address)


def _path(text: str) -> str:
    if _PERCENT.search(text):
        raise TargetError("the URL's path has a % that encodes nothing")
    for segment in text.split("/"):
        if unquote_to_bytes(segment) in (b".", b".."):
            raise TargetError("the URL's path has . or .. in it")
    return quote(text, safe=_SAFE.replace("?", ""))


def _query(text: str | None) -> str | None:
    # braces stay: a placeholder may be here
    return None if text is None else quote(text, safe=_SAFE + "{}[]")
