"""For whom core acts just now: set once for each HTTP request, read where something is recorded."""

from contextvars import ContextVar

REQUEST: ContextVar[str] = ContextVar("request_id", default="req_none")
"""The id that the answer carries."""

WHO: ContextVar[str] = ContextVar("who", default="")
"""``uid:NUMBER`` on the command line's socket, ``token:ID`` of an administrator; empty otherwise."""
