"""A client's connection: the library's, except for its answers to what is no request.

Its own would quote the line that was wrong, which may hold a token, and name the library's version.
"""

import asyncio
import secrets
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import structlog
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from core.acting import REQUEST
from core.hub.errors import HubError
from core.hub.headers import HEADERS
from core.hub.places import Place

_MESSAGES = {
    HTTPStatus.INTERNAL_SERVER_ERROR: ("the server failed; it was logged", "internal"),
    HTTPStatus.GATEWAY_TIMEOUT: ("the server took too long", "timeout"),
}
_EXPECTED = ("this server expects nothing but 100-continue", "unsupported_expectation")
_MALFORMED = ("this is no HTTP request, or one with too long a line or too many headers", "malformed_request")


class Connection(RequestHandler):
    """Answers what is malformed as all errors are answered, and with nothing of what came."""

    __slots__ = ("_gone", "_held", "gauged", "place")

    def __init__(
        self, server: web.Server, place: Place, gone: Callable[[Place], None], **options: Any
    ) -> None:
        """Args: place, the connection's, and ``gone``, called with it at the connection's end."""
        super().__init__(server, loop=asyncio.get_running_loop(), **options)
        self.place, self._gone = place, gone
        self.gauged: Callable[[Any], Any] | None = None
        self._held = 0

    def set_parser(self, parser: Any, data_received_cb: Callable[[], None] | None = None) -> None:
        """It is a WebSocket's from here on; ``gauged`` stands before its parser, for what came before too."""
        super().set_parser(parser if self.gauged is None else self.gauged(parser), data_received_cb)

    def hold(self, wait_s: float | None) -> None:
        """Read nothing for so long (in seconds; None: any more), whoever else wants to go on."""
        self.pause_reading()
        self._held += 1
        if wait_s is not None:
            self._loop.call_later(wait_s, self._release)

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Read on, unless it is held."""
        if not self._held:
            super().resume_reading(resume_parser)

    def _release(self) -> None:
        self._held -= 1
        self.resume_reading()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Give the place back."""
        self._gone(self.place)
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = HTTPStatus.INTERNAL_SERVER_ERROR,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to a request that never reached the application, or to a failure outside of it.

        Raises ConnectionError where another answer was begun.
        """
        request_id = _new_id()
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            super().handle_error(request, status, exc, message)  # logs it
        return _answer(status, *_MESSAGES.get(HTTPStatus(status), _MALFORMED), request_id)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send an answer; the library's own to an Expect header, past every middleware, is replaced."""
        if isinstance(resp, web.HTTPExpectationFailed):
            resp = _answer(resp.status, *_EXPECTED, _new_id())
        return await super().finish_response(request, resp, start_time)


def _new_id() -> str:
    request_id = f"req_{secrets.token_hex(12)}"
    REQUEST.set(request_id)
    return request_id


def _answer(status: int, text: str, code: str, request_id: str) -> web.Response:
    response = web.Response(
        body=HubError(status, text, code).body(),
        status=status,
        content_type="application/json",
        headers={**HEADERS, "X-Request-Id": request_id},
    )
    response.force_close()
    return response
