"""A server outside, for the real server's agents: greets, echoes, takes and gives bodies, holds."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_WAIT_S = 60.0
_PIECE_BYTES = 1 << 16


class OutsideServer:
    """What came; ``held`` and ``left`` are set when a request of /hold came, and when its client left."""

    def __init__(self) -> None:
        self.port = 0
        self.heads: list[str] = []
        self.bodies: list[bytes] = []
        self.held, self.left = threading.Event(), threading.Event()

    @property
    def url(self) -> str:
        """Without a path."""
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def outside_server() -> Iterator[OutsideServer]:
    """Serve on a free port of 127.0.0.1 as long as the block runs."""
    made = OutsideServer()

    class Handler(BaseHTTPRequestHandler):
        timeout = _WAIT_S

        def log_message(self, format: str, *arguments: Any) -> None:
            """Stay silent."""

        def _head(self, size: int, status: int = 200) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(size))
            self.end_headers()

        def _serve(self) -> None:
            made.heads.append(f"{self.command} {self.path}\n{self.headers}")
            body = self._body()
            made.bodies.append(body)
            path, _, number = self.path.strip("/").partition("/")
            if path == "hello":
                self._say(b"hello from outside")
            elif path == "echo":
                self._say(str(self.headers).encode() + body)
            elif path == "many":
                self._head(int(number))
                for _ in range(int(number) // _PIECE_BYTES):
                    self.wfile.write(bytes(_PIECE_BYTES))
            elif path == "hold":
                self._head(10)
                self.wfile.flush()
                made.held.set()
                if not self.rfile.read(1):
                    made.left.set()
            else:
                self._head(0, 404)

        def _say(self, data: bytes) -> None:
            self._head(len(data))
            self.wfile.write(data)

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            found = bytearray()
            while size := int(self.rfile.readline(), 16):
                found += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return bytes(found)

        do_GET = do_POST = do_PUT = _serve

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False
    made.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        thread.join(_WAIT_S)
        server.server_close()
