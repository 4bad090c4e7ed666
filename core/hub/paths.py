"""Paths of a user's home in requests and answers. What one means is the jail's to say."""

import re
from urllib.parse import quote, unquote_to_bytes

from aiohttp import web

from core.hub.errors import invalid
from jail.wire.paths import to_bytes, to_text

MAX_PATH = 4_096
_UNSAFE = re.compile(r"[^ !#-\[\]-~]")  # what a quoted-string cannot hold as it is (RFC 9110, 5.6.4)


def query_path(request: web.Request, default: str | None = None) -> str:
    """The parameter ``path``, as it goes over the wire; HubError 400.

    Taken from the raw query: a percent-encoded byte that is no UTF-8 is a part of a name, too.
    """
    found = [
        value.replace("+", " ")
        for name, _, value in (pair.partition("=") for pair in request.rel_url.raw_query_string.split("&"))
        if name == "path"
    ]
    if len(found) > 1:
        raise invalid("`path` came more than once", "invalid_value", "path")
    if not found and default is not None:
        return default
    if not found:
        raise invalid("`path` is missing", "missing_required_parameter", "path")
    return wire_path(unquote_to_bytes(found[0]))


def wire_path(raw: bytes) -> str:
    """A path's bytes as it goes over the wire; HubError 400."""
    if b"\0" in raw:
        raise invalid("a path has no NUL characters", "invalid_value", "path")
    path = to_text(raw) or "."
    if len(path) > MAX_PATH:
        raise invalid(f"a path is at most {MAX_PATH} characters", "invalid_value", "path")
    return path


def shown(path: str) -> str:
    """A path for people and JSON; bytes that are no UTF-8 become U+FFFD."""
    return to_bytes(path).decode("utf-8", "replace")


def encoded(path: str) -> str:
    """A path as the value of ``path=`` in a query; says every name."""
    return quote(to_bytes(path), safe="/")


def join(directory: str, name: str) -> str:
    """A name in a directory, the home being ``.``."""
    inside = directory.strip("/")
    return name if inside in ("", ".") else f"{inside}/{name}"


def disposition(path: str) -> str:
    """``Content-Disposition`` for a download of a file (RFC 6266, 4.3)."""
    name = to_bytes(path).rstrip(b"/").rpartition(b"/")[2] or b"file"
    text = name.decode("utf-8", "replace")
    plain = _UNSAFE.sub("_", text)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(text, safe='')}"
