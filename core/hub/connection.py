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

from core.hub.errors import HubError
from core.hub.headers import HEADERS
from core.hub.places import Place

_MESSAGES = {
    HTTPStatus.INTERNAL_SERVER_ERROR: ("the server failed; it was logged", "internal"),
    HTTPStatus.GATEWAY_TIMEOUT: ("the server took too long", "timeout"),
}
_MALFORMED = ("this is no HTTP request, or one with too long a line or too many headers", "malformed_request")


class Connection(RequestHandler):
    """Answers what is malformed as all errors are answered, and with nothing of what came."""

    __slots__ = ("_gone", "place")

    def __init__(
        self, server: web.Server, place: Place, gone: Callable[[Place], None], **options: Any
    ) -> None:
        """Args: place, the connection's, and ``gone``, called with it at the connection's end."""
        super().__init__(server, loop=asyncio.get_running_loop(), **options)
        self.place, self._gone = place, gone

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
        request_id = f"req_{secrets.token_hex(12)}"
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            super().handle_error(request, status, exc, message)  # logs it
        text, code = _MESSAGES.get(HTTPStatus(status), _MALFORMED)
        response = web.Response(
            body=HubError(status, text, code).body(),
            status=status,
            content_type="application/json",
            headers={**HEADERS, "X-Request-Id": request_id},
        )
        response.force_close()
        return response
