"""A client of the public HTTP API, as far as the command line needs one."""

import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, Literal
from urllib.parse import quote, urlsplit

from core.cli.admin import error_message
from core.cli.failure import UNREACHABLE, USAGE, CommandFailed

_CONNECT_S = 30.0
_SILENCE_S = 1_800.0
"""The longest a turn may say nothing: above the 900 s that a turn has by default."""
_MAX_LINE_BYTES = 8 << 20
_MAX_ERROR_BYTES = 1 << 20
_MAX_ANSWER_BYTES = 64 << 20
_PIECE_BYTES = 64 << 10

PieceKind = Literal[
    "text", "reasoning", "tool_call", "tool_progress", "tool_result", "picture", "approval_wanted",
    "approval_resolved", "notice", "finish",
]  # fmt: skip
_SHOWN: Final = (
    "reasoning", "tool_call", "tool_progress", "tool_result", "picture", "approval_wanted",
    "approval_resolved", "notice",
)  # fmt: skip
_TEXTS: Final = {
    "tool_call": "arguments", "picture": "path", "approval_wanted": "arguments",
    "approval_resolved": "outcome",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Piece:
    """Something that a running turn says.

    ``text`` is a part of the answer, of its reasoning or of a tool's output, a tool's arguments
    (JSON text) or result, a picture's path, a notice, or why the turn finished; ``name`` and ``step`` are
    a tool's, ``caption`` is a picture's.
    An ``approval`` waits for its user until ``expires_s`` (Unix time); ``cut``: there is more text.
    """

    kind: PieceKind
    text: str = ""
    name: str = ""
    step: int = 0
    ok: bool = True
    approval: str = ""
    expires_s: int = 0
    cut: bool = False
    caption: str = ""


class Turn:
    """A turn that the server runs: its id, its session, and its pieces as they come."""

    def __init__(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        self._connection = connection
        self._response = response
        self.turn_id = response.headers.get("X-Certosa-Turn", "")

    def pieces(self) -> Iterator[Piece]:
        """Yield what the turn says until it has ended. Raises CommandFailed where it fails."""
        try:
            yield from self._read()
        except (OSError, http.client.HTTPException) as error:
            raise CommandFailed(
                f"the connection broke before the answer was whole ({error or type(error).__name__})",
                UNREACHABLE,
            ) from None
        finally:
            self.close()

    def close(self) -> None:
        """Stop listening. A turn in a session goes on without us."""
        self._response.close()
        self._connection.close()

    def _read(self) -> Iterator[Piece]:
        """Server-sent events (HTML standard, 9.2): only `data:` lines, one JSON text each."""
        while line := self._response.readline(_MAX_LINE_BYTES):
            if not line.startswith(b"data:"):
                continue
            data = line[5:].strip()
            if data == b"[DONE]":
                return
            try:
                pieces = list(_pieces(json.loads(data)))
            except (ValueError, TypeError, AttributeError, RecursionError):
                raise CommandFailed("the server sent an event that is no chat completion") from None
            yield from pieces
        raise CommandFailed(
            "the connection ended before the answer was whole: see whether the server runs, and ask again",
            UNREACHABLE,
        )


class ApiClient:
    """Calls on one server as one user.

    Args:
        url: ``http://HOST:PORT`` or https, with or without ``/v1`` at its end.
        token: the bearer token; it goes into one header and nowhere else.
    Raises CommandFailed for a url that is none.
    """

    def __init__(self, url: str, token: str) -> None:
        try:
            parts = urlsplit(url)
            self._port = parts.port
        except ValueError as error:
            raise CommandFailed(f"{url} is not a server's address: {error}", USAGE) from None
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise CommandFailed(f"{url} is not a server's address: say http://HOST:PORT", USAGE)
        if not token.isascii() or not token.isprintable() or " " in token:
            raise CommandFailed("the token is not one: it has no spaces and no special characters", USAGE)
        self._tls = parts.scheme == "https"
        self._host = parts.hostname
        self._prefix = parts.path.rstrip("/").removesuffix("/v1")
        self._url = f"{parts.scheme}://{parts.netloc}"
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def start_turn(self, text: str, session: str, model: str = "assistant") -> Turn:
        """Say ``text`` in a session; returns once the server has taken it. Raises CommandFailed."""
        body = {
            "model": model,
            "stream": True,
            "messages": [{"role": "user", "content": text}],
        }
        headers = {"X-Certosa-Session": session, "X-Certosa-Events": "on"}
        connection, response = self._send("POST", "/v1/chat/completions", body, headers)
        return Turn(connection, response)

    def cancel_turn(self, turn_id: str) -> None:
        """Ask the server to end a turn; the turn's own stream says how it ended."""
        path = f"/v1/turns/{quote(turn_id, safe='')}/cancel"
        connection, response = self._send("POST", path, {}, {})
        response.close()
        connection.close()

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """One request and its JSON answer. Raises CommandFailed."""
        connection, response = self._send(method, path, body, {})
        try:
            return json.loads(response.read(_MAX_ANSWER_BYTES))
        except (OSError, http.client.HTTPException, ValueError):
            raise CommandFailed(f"the server at {self._url} sent an answer that is none") from None
        finally:
            response.close()
            connection.close()

    def download(self, path: str, to: BinaryIO) -> None:
        """Write an answer of any length to a file. Raises CommandFailed, and OSError of the file's."""
        connection, response = self._send("GET", path, None, {})
        try:
            while data := _read(response):
                to.write(data)
        finally:
            response.close()
            connection.close()

    def _send(
        self, method: str, path: str, body: dict[str, Any] | None, headers: dict[str, str]
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        kind = http.client.HTTPSConnection if self._tls else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=_CONNECT_S)
        try:
            connection.connect()
            connection.sock.settimeout(_SILENCE_S)
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, self._prefix + path, data, {**self._headers, **headers})
            response = connection.getresponse()
            if response.status < 400:
                return connection, response
            with response:
                failure = _refusal(response)
        except (OSError, http.client.HTTPException) as error:
            failure = CommandFailed(
                f"no server answers at {self._url} ({error or type(error).__name__}): start one with"
                " `certosa serve`, or name its address with --url",
                UNREACHABLE,
            )
        except BaseException:
            connection.close()
            raise
        connection.close()
        raise failure


def _read(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read(_PIECE_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise CommandFailed(
            f"the connection broke before all had come ({error or type(error).__name__})", UNREACHABLE
        ) from None


def _refusal(response: http.client.HTTPResponse) -> CommandFailed:
    try:
        answer = json.loads(response.read(_MAX_ERROR_BYTES))
    except ValueError:
        answer = None
    message = error_message(answer, f"the server refused, with status {response.status}")
    after = response.headers.get("Retry-After", "")
    return CommandFailed(f"{message} (try again in {after} s)" if after.isdigit() else message)


def _pieces(chunk: dict[str, Any]) -> Iterator[Piece]:
    if "error" in chunk:
        raise CommandFailed(error_message(chunk, "the turn failed"))
    event = chunk.get("certosa")
    if isinstance(event, dict):
        kind = event.get("type")
        for known in _SHOWN:
            if kind == known:
                yield Piece(
                    known,
                    str(event.get(_TEXTS.get(known, "text"), "")),
                    str(event.get("name", "")),
                    int(event.get("step", 0)),
                    event.get("ok") is not False,
                    str(event.get("approval", "")),
                    int(event.get("expires_s", 0)),
                    event.get("cut") is True,
                    str(event.get("caption", "")),
                )
    for choice in chunk.get("choices") or ():
        delta = choice.get("delta") or {}
        if delta.get("content"):
            yield Piece("text", str(delta["content"]))
        if choice.get("finish_reason"):
            yield Piece("finish", str(choice["finish_reason"]))
