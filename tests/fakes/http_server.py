"""An HTTP server that answers what a test says, over a real TCP or Unix socket."""

import json
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

_WAIT_S = 20.0


@dataclass(frozen=True)
class Seen:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


@dataclass(frozen=True)
class Answer:
    """What to answer; ``pieces`` are sent one by one, each flushed, after ``body``."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    pieces: Callable[[], Iterator[bytes]] | None = None


def json_answer(value: Any, status: int = 200) -> Answer:
    """An answer that is JSON."""
    return Answer(status, json.dumps(value).encode(), {"Content-Type": "application/json"})


def events(*chunks: Any, end: bytes = b"data: [DONE]\n\n") -> bytes:
    """Chunks as server-sent events."""
    return b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + end


class FakeHttpServer:
    """Answers each request through ``respond`` and remembers it in ``seen``."""

    def __init__(self, server: socketserver.BaseServer, respond: Callable[[Seen], Answer]) -> None:
        self.seen: list[Seen] = []
        self.port: int = server.server_address[1] if isinstance(server.server_address, tuple) else 0
        self._respond = respond

    @property
    def url(self) -> str:
        """Its address over TCP."""
        return f"http://127.0.0.1:{self.port}"

    def answer(self, seen: Seen) -> Answer:
        """Remember a request and make its answer."""
        self.seen.append(seen)
        return self._respond(seen)


class _UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    pass


class _TcpServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    allow_reuse_address = True


@contextmanager
def http_server(respond: Callable[[Seen], Answer], unix_path: Path | None = None) -> Iterator[FakeHttpServer]:
    """Serve on a free port of 127.0.0.1, or on a socket file, as long as the block runs."""
    fake: FakeHttpServer

    class Handler(BaseHTTPRequestHandler):
        timeout = _WAIT_S

        def address_string(self) -> str:
            return "client"

        def log_message(self, format: str, *arguments: Any) -> None:
            """Stay silent."""

        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            raw = self.rfile.read(length)
            body = json.loads(raw) if raw else None
            answer = fake.answer(Seen(self.command, self.path, dict(self.headers), body))
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body)
            for piece in answer.pieces() if answer.pieces else ():
                self.wfile.write(piece)
                self.wfile.flush()

        do_GET = do_POST = do_PUT = do_DELETE = _serve

    server: socketserver.BaseServer
    if unix_path is not None:
        server = _UnixServer(str(unix_path), Handler)
    else:
        server = _TcpServer(("127.0.0.1", 0), Handler)
    fake = FakeHttpServer(server, respond)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        thread.join(_WAIT_S)
        server.server_close()


def closed_port() -> int:
    """A port of 127.0.0.1 where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])
