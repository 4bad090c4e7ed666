"""One streamed turn as a client sees it: when it spoke first, how late each token came, how it ended.

A bare socket and one look at each piece of bytes: a client that parsed every chunk would be the
largest load of the test.
"""

import json
import socket
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from core.capacity.pace import stamps_s

_LIMIT_S = 120.0
_READ_BYTES = 65_536
_KEPT_BYTES = 512  # what may hold the beginning of a token, or of the end, that is not whole yet
_DONE = b"data: [DONE]"
_HOST = "127.0.0.1"


@dataclass(slots=True)
class Turn:
    """A turn: ``error`` is "" or a code; times are milliseconds."""

    began_s: float
    first_ms: float | None = None
    whole_ms: float = 0.0
    error: str = ""
    retry_after_s: float = 0.0


Seen = Callable[[float, list[float]], None]
"""``(now_s, delays_ms)``: tokens came, each so long after the model server sent it."""


def take_turn(
    port: int,
    model: str,
    text: str,
    token: str = "",
    seen: Seen | None = None,
    leave_after_s: float | None = None,
) -> Turn:
    """Run a turn to its end, or leave in its midst; never raises for what a server does."""
    turn = Turn(time.monotonic())
    message = {"role": "user", "content": text}
    body = json.dumps({"model": model, "stream": True, "messages": [message]}).encode()
    try:
        with closing(socket.create_connection((_HOST, port), _LIMIT_S)) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.sendall(_head(token, len(body)) + body)
            _read(turn, sock, seen, leave_after_s)
    except TimeoutError:
        turn.error = "silent"
    except OSError as error:
        turn.error = f"connection_{type(error).__name__}"
    turn.whole_ms = (time.monotonic() - turn.began_s) * 1_000
    return turn


def _head(token: str, length: int) -> bytes:
    return (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {_HOST}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


def _read(turn: Turn, sock: socket.socket, seen: Seen | None, leave_after_s: float | None) -> None:
    kept = b""
    answered = False
    while True:
        piece = sock.recv(_READ_BYTES)
        now_s = time.monotonic()
        data = kept + piece
        if not answered and b"\r\n\r\n" in data:
            answered = True
            if not data.startswith(b"HTTP/1.1 200"):
                _refused(turn, data + _rest(sock))
                return
        cut = data.rfind(b"\n") + 1
        sent_s = stamps_s(data[:cut])
        if sent_s and turn.first_ms is None:
            turn.first_ms = (now_s - turn.began_s) * 1_000
        if sent_s and seen is not None:
            seen(now_s, [(now_s - sent) * 1_000 for sent in sent_s])
        if _DONE in data:
            if turn.first_ms is None:
                turn.error = "no_token"
            return
        if b'"error"' in data:
            turn.error = _code(data)
            return
        if not piece:
            turn.error = "cut"
            return
        if leave_after_s is not None and now_s - turn.began_s > leave_after_s:
            return
        kept = data[cut:][-_KEPT_BYTES:] if answered else data


def _rest(sock: socket.socket) -> bytes:
    data = b""
    while piece := sock.recv(_READ_BYTES):
        data += piece
    return data


def _refused(turn: Turn, data: bytes) -> None:
    head, _, _ = data.partition(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"retry-after" and value.strip().isdigit():
            turn.retry_after_s = float(value)
    turn.error = _code(data)


def _code(data: bytes) -> str:
    """The error's code in an answer, as OpenAI's format has it."""
    _, found, rest = data.partition(b'"code"')
    if not found:
        return "error"
    code = rest.lstrip(b": ")[1:].partition(b'"')[0]
    return code.decode("ascii", "replace")[:40] or "error"
