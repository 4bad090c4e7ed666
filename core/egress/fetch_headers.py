"""Headers on their way out and back: what an agent may not set, and what it does not get."""

import re
from collections.abc import Sequence

from multidict import CIMultiDictProxy

from core.egress.fetch_stream import FetchError
from core.egress.strike import Strike
from jail.wire.schema import Header

MAX_HEADERS = 128
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256}", re.ASCII)  # RFC 9110, 5.6.2
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_OURS = frozenset({
    "host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "te", "trailer",
    "expect", "accept-encoding", "proxy-connection", "proxy-authorization", "http2-settings",
})  # fmt: skip
_OF_CONNECTION = frozenset({
    "connection", "keep-alive", "transfer-encoding", "upgrade", "te", "trailer", "content-encoding",
    "proxy-authenticate", "proxy-connection", "alt-svc", "strict-transport-security",
})  # fmt: skip
_MAX_VALUE = 16_384


def to_server(headers: Sequence[Header], most_bytes: int) -> list[tuple[str, str]]:
    """What is sent, ours included. Raises FetchError for a header that is none, or not the agent's."""
    found: list[tuple[str, str]] = []
    size = 0
    for header in headers:
        if _NAME.fullmatch(header.name) is None or _VALUE.fullmatch(header.value) is None:
            raise FetchError("invalid", "a header's name or value has characters that none may have")
        if header.name.lower() in _OURS:
            raise FetchError("invalid", f"the header {header.name[:64]} is set by the server itself")
        size += len(header.name) + len(header.value) + 4
        found.append((header.name, header.value.strip()))
    if size > most_bytes:
        raise FetchError("limit", f"the headers are longer than {most_bytes} bytes")
    names = {name.lower() for name, _ in found}
    defaults = {"User-Agent": "certosa", "Accept": "*/*"}
    found += [(name, value) for name, value in defaults.items() if name.lower() not in names]
    return [*found, ("Accept-Encoding", "gzip, deflate")]


def size_of(headers: "CIMultiDictProxy[str]") -> int:
    """About how many bytes they were."""
    return sum(len(name) + len(value) + 4 for name, value in headers.items())


def from_server(
    headers: "CIMultiDictProxy[str]", strike: Strike, most_bytes: int, decoded: bool
) -> tuple[Header, ...]:
    """What the agent gets: nothing of the connection, no value of a credential. Raises FetchError."""
    found: list[Header] = []
    size = 0
    for name, value in headers.items():
        size += len(name) + len(value) + 4
        if size > most_bytes:
            raise FetchError("limit", f"the answer's headers are longer than {most_bytes} bytes")
        low = name.lower()
        if low in _OF_CONNECTION or (decoded and low == "content-length"):
            continue
        found.append(Header(strike.text(_plain(name))[:256], strike.text(_plain(value))[:_MAX_VALUE]))
    return tuple(found)


def _plain(text: str) -> str:
    """Bytes that are no UTF-8 came as surrogates, which no message can hold."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
