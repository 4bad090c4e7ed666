"""For whom and for what core acts just now: set once for each request, read where something is recorded.

One id goes with a request from the hub through the user's actor, the jail and its tools to egress: on
every log line, in the turn's first event, in the audit log, and as an exemplar of what was measured.
Beside it goes the trace that a client's ``traceparent`` names, or a fresh one; model servers are sent it.
"""

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import structlog

NO_REQUEST = "req_none"
REQUEST: ContextVar[str] = ContextVar("request_id", default=NO_REQUEST)
"""The id that the answer carries."""

TRACE: ContextVar["Trace | None"] = ContextVar("trace", default=None)
"""The trace that the request belongs to."""

WHO: ContextVar[str] = ContextVar("who", default="")
"""``uid:NUMBER`` on the command line's socket, ``token:ID`` of an administrator; empty otherwise."""

# versions above 00 may have more behind the flags, and ff is none (W3C Trace Context, 3.2)
_TRACEPARENT = re.compile(r"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?\Z")


class Trace(NamedTuple):
    """A trace of many parties', by its id (32 hexadecimal digits), and whether it is recorded."""

    id: str
    sampled: bool

    def header(self) -> str:
        """``traceparent`` for a request of ours: the same trace, a fresh span in it."""
        return f"00-{self.id}-{secrets.token_hex(8)}-{int(self.sampled):02x}"


def parse_trace(traceparent: str | None) -> Trace:
    """What a ``traceparent`` says; one that says nothing proper is left aside, and a new trace begins.

    See https://www.w3.org/TR/trace-context/#traceparent-header.
    """
    found = _TRACEPARENT.match(traceparent or "")
    if found is not None:
        version, trace_id, parent_id, flags, more = found.groups()
        if int(trace_id, 16) and int(parent_id, 16) and not (version == "00" and more):
            return Trace(trace_id, bool(int(flags, 16) & 1))
    return Trace(secrets.token_hex(16), False)


def fresh_request() -> str:
    """An id that no other request has."""
    return f"req_{secrets.token_hex(12)}"


@contextmanager
def acting(request: str, trace: Trace | None = None) -> Iterator[None]:
    """Within the block this thread or task acts for ``request``: what it logs and records says so.

    The trace is the one of the block around it where none is given; an empty ``request`` changes nothing.
    """
    if not request:
        yield
        return
    trace = trace or TRACE.get()
    of = {"request_id": request} | ({"trace_id": trace.id} if trace is not None else {})
    set_request, set_trace = REQUEST.set(request), TRACE.set(trace)
    try:
        with structlog.contextvars.bound_contextvars(**of):
            yield
    finally:
        REQUEST.reset(set_request)
        TRACE.reset(set_trace)


def current_request() -> str:
    """The request's id; empty where nobody asked for what is done."""
    request = REQUEST.get()
    return "" if request == NO_REQUEST else request


def current_traceparent() -> str:
    """A ``traceparent`` to hand on; empty outside of a request."""
    trace = TRACE.get()
    return trace.header() if trace is not None else ""
