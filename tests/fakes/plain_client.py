"""An HTTP client that sends exactly what a test says, and sockets for what no client would send."""

import http.client
import json
import socket
from typing import Any, NamedTuple
from urllib.parse import urlsplit

TIMEOUT_S = 20.0


class Answer(NamedTuple):
    """An HTTP answer, read to its end."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error, after checking that it has OpenAI's shape and the answer an id."""
        assert self.status >= 400
        found = self.json
        assert list(found) == ["error"]
        assert sorted(found["error"]) == ["code", "message", "param", "type"]
        assert self.headers["x-request-id"].startswith("req_")
        error: dict[str, Any] = found["error"]
        return error


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(self._path)


class PlainClient:
    """One request, one connection; ``url`` is http://HOST:PORT or a Unix socket's path."""

    def __init__(self, url: str, headers: dict[str, str] | None = None) -> None:
        self._url = url
        self._headers = headers or {}

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | list[tuple[str, str]] | None = None,
    ) -> Answer:
        """``body`` is bytes as they are, or anything else as JSON."""
        if self._url.startswith("/"):
            connection: http.client.HTTPConnection = _UnixConnection(self._url)
        else:
            at = urlsplit(self._url)
            connection = http.client.HTTPConnection(at.hostname or "", at.port, timeout=TIMEOUT_S)
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        extra = headers.items() if isinstance(headers, dict) else (headers or [])
        try:
            connection.putrequest(method, path)
            for name, value in [*self._headers.items(), *extra]:
                connection.putheader(name, value)
            if data is not None:
                connection.putheader("Content-Length", str(len(data)))
            connection.endheaders(data)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())
        finally:
            connection.close()


def open_stream(address: tuple[str, int], body: dict[str, Any], **headers: str) -> socket.socket:
    """Send a chat request on a bare socket and return it unread; the caller closes it."""
    data = json.dumps(body).encode()
    lines = [
        "POST /v1/chat/completions HTTP/1.1",
        "Host: certosa",
        "Authorization: Bearer token-alice",
        f"Content-Length: {len(data)}",
        *[f"{name.replace('_', '-')}: {value}" for name, value in headers.items()],
    ]
    sock = socket.socket()
    sock.settimeout(TIMEOUT_S)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    sock.connect(address)
    sock.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + data)
    return sock


def read_until(sock: socket.socket, wanted: bytes) -> bytes:
    """Read until something came; raises AssertionError when the stream ended before it."""
    found = b""
    while wanted not in found:
        data = sock.recv(4_096)
        assert data, f"the stream ended without {wanted!r}: {found[-500:]!r}"
        found += data
    return found


def read_to_end(sock: socket.socket) -> bytes:
    """All that still comes; a reset connection is an end too."""
    found = b""
    try:
        while data := sock.recv(65_536):
            found += data
    except ConnectionResetError:
        pass
    return found
