"""Keeps streams running through a server and reads them: the load of ``first-token``.

    python -m scripts.benches._streams PORT MODEL

reads tokens of users from its first line of input (JSON), starts a turn for each, spread over a
second, and prints a line once all of them speak. At the end of input it prints how many tokens it
was given since then, in how many seconds, and leaves, which cancels the turns.
"""

import json
import selectors
import socket
import sys
import time

_PIECE = b"tok "  # what the fake model server's tokens are
_READ_BYTES = 65_536
_START_S = 60.0


def _start(port: int, model: str, token: str) -> socket.socket:
    body = {"model": model, "stream": True, "messages": [{"role": "user", "content": "Talk."}]}
    data = json.dumps(body)
    sock = socket.create_connection(("127.0.0.1", port))
    sock.sendall(
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n{data}".encode()
    )
    sock.setblocking(False)
    return sock


class _Reader:
    """Reads all streams, and counts."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.speaking: set[int] = set()
        self.tokens = 0

    def read(self, timeout_s: float) -> bool:
        """Read what has come; False at the end of our input."""
        for key, _ in self.selector.select(timeout_s):
            if key.fileobj is sys.stdin:
                return False
            assert isinstance(key.fileobj, socket.socket)
            data = key.fileobj.recv(_READ_BYTES)
            if not data:
                raise SystemExit("a stream ended")
            found = data.count(_PIECE)
            if found:
                self.speaking.add(key.fd)
                self.tokens += found
            elif not data.startswith(b"HTTP/1.1 200") and b"error" in data:
                raise SystemExit(f"a stream failed: {data[:300]!r}")
        return True


def main(port: int, model: str) -> None:
    """See the module."""
    users: list[str] = json.loads(sys.stdin.readline())
    reader = _Reader()
    for token in users:
        reader.selector.register(_start(port, model, token), selectors.EVENT_READ)
        until = time.monotonic() + 1.0 / len(users)
        while (left_s := until - time.monotonic()) > 0:
            reader.read(left_s)
    deadline = time.monotonic() + _START_S
    while len(reader.speaking) < len(users):
        if time.monotonic() > deadline:
            raise SystemExit(f"{len(reader.speaking)} of {len(users)} streams speak")
        reader.read(1.0)
    print("running", flush=True)
    reader.tokens, began = 0, time.monotonic()
    reader.selector.register(sys.stdin, selectors.EVENT_READ)
    while reader.read(5.0):
        pass
    print(json.dumps({"tokens": reader.tokens, "seconds": time.monotonic() - began}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
