"""What every answer has: an id, plain headers, an error's shape, and a count."""

import asyncio
from contextlib import AbstractContextManager, nullcontext

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from core.acting import REQUEST as _request_id
from core.acting import TRACE, WHO, fresh_request, parse_trace
from core.hub import anthropic_errors
from core.hub.access import ACCESS
from core.hub.admin import AdministrationError, from_administration
from core.hub.connection import Connection
from core.hub.errors import CLIENT_CLOSED, HubError
from core.hub.headers import HEADERS
from core.metrics import Metrics

_CSP = "Content-Security-Policy"
_OVER_TLS = "max-age=31536000"  # a year, RFC 6797
_HTTP_ERRORS = {
    404: ("there is nothing at this address", "unknown_url"),
    405: ("this address does not take that method", "method_not_allowed"),
    413: ("the body is longer than this server takes", "body_too_large"),
}
_ROUTES = {
    "/v1/chat/completions": "chat",
    "/v1/messages": "messages",
    "/v1/ws": "ws",
    "/healthz": "health",
    "/readyz": "health",
    "/metrics": "metrics",
}
_FAMILIES = ("models", "files", "sessions", "agents", "approvals", "usage", "credentials", "oauth")

PAGES: web.AppKey[bool] = web.AppKey("pages", bool)
"""Whether an application answers to web pages of the configured origins."""

_log = structlog.get_logger()


async def finish_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Signal ``on_response_prepare``: the headers that every answer has."""
    if anthropic_errors.speaks(request.path):
        response.headers["Request-Id"] = _request_id.get()
    for name, value in HEADERS.items():
        if name != _CSP or name not in response.headers:  # a page says by itself what it may
            response.headers[name] = value
    response.headers["X-Request-Id"] = _request_id.get()
    if request.secure:
        response.headers["Strict-Transport-Security"] = _OVER_TLS
    if (access := request.config_dict.get(ACCESS)) is not None and request.config_dict.get(PAGES, False):
        access.add_headers(request, response)


def answering(metrics: Metrics, admin: bool) -> Middleware:
    """The outermost middleware of an application; ``admin``: of the command line's."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        # not set back: an answer's headers are made after this has returned
        _request_id.set(request_id := fresh_request())
        TRACE.set(trace := parse_trace(_one(request, "traceparent")))
        WHO.set("")  # requests of one connection share a context
        ids = structlog.contextvars.bound_contextvars(request_id=request_id, trace_id=trace.id)
        with ids, _busy(request):
            response = _preflight(request) or await _answer(request, handler)
        route = "admin" if admin else _route(request)
        metrics.http_answered(route, response.status)
        return response

    return middleware


def _one(request: web.Request, name: str) -> str | None:
    found = request.headers.getall(name, [])
    return found[0] if len(found) == 1 else None


def _busy(request: web.Request) -> AbstractContextManager[None]:
    connection = request.protocol
    if not isinstance(connection, Connection):
        return nullcontext()
    return connection.place.answering(asyncio.get_running_loop().time)


def _preflight(request: web.Request) -> web.Response | None:
    if not request.config_dict.get(PAGES, False):
        return None
    return request.config_dict[ACCESS].preflight(request)


def _route(request: web.Request) -> str:
    if (known := _ROUTES.get(request.path)) is not None:
        return known
    if request.path.startswith("/admin/v1/"):
        return "admin"
    part = request.path.removeprefix("/v1/").partition("/")[0]
    return part if request.path.startswith("/v1/") and part in _FAMILIES else "other"


async def _answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        _check_coding(request)
        return await handler(request)
    except HubError as error:
        log = _log.warning if error.status >= 500 else _log.debug
        log("request_refused", status=error.status, code=error.code, route=_route(request))
        return _error(request, error)
    except AdministrationError as error:
        return _error(request, from_administration(error))
    except web.HTTPException as error:
        message, code = _HTTP_ERRORS.get(error.status, (error.reason, "http_error"))
        allow = error.headers.get("Allow")
        return _error(
            request, HubError(error.status, message, code, headers={"Allow": allow} if allow else {})
        )
    except ConnectionError as error:
        # nobody is there to read an answer; aiohttp wants one all the same
        _log.info("client_left", error=type(error).__name__)
        return _error(request, HubError(CLIENT_CLOSED, "the client left", "client_closed"))
    except Exception:  # noqa: BLE001 - a bug: logged here, with an id that the client can name
        _log.exception("request_crashed")
        return _error(request, HubError(500, _internal(), "internal"))


def _check_coding(request: web.Request) -> None:
    """HubError 400 for a body in another coding than chunked: the parser takes that off and no other."""
    codings = ",".join(request.headers.getall("Transfer-Encoding", []))
    if codings and codings.strip().lower() != "chunked":
        raise HubError(
            400,
            "send the body as it is: chunked is the only transfer coding here",
            "unsupported_encoding",
            param="Transfer-Encoding",
            headers={"Connection": "close"},
        )


def _internal() -> str:
    return f"the server failed; tell its operator this id: {_request_id.get()}"


def _error(request: web.Request, error: HubError) -> web.Response:
    body = error.body()
    if anthropic_errors.speaks(request.path):
        body = anthropic_errors.body(error, _request_id.get())
    response = web.Response(
        body=body, status=error.status, content_type="application/json", headers=error.headers
    )
    if "Connection" in error.headers:
        response.force_close()
    return response
