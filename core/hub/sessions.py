"""/v1/sessions: a user's own, in the database that their handle opens.

Another user's session is in another database, so its id is here like one that never was.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import msgspec
import structlog
from aiohttp import web
from msgspec import Meta

from core.errors import CoreError, SealError
from core.hub.bodies import as_json, parsed
from core.hub.errors import HubError, from_storage, invalid
from core.hub.exports import EXPORTS, message_object, session_object
from core.hub.files import whole_or_broken
from core.hub.paths import disposition
from core.hub.tokens import Verifier, authenticate
from core.hub.writing import write
from core.sessions import (
    Cursor,
    Library,
    NoSuchSession,
    SessionBusy,
    SessionExists,
    SessionNameError,
    SessionTooLong,
    StorageError,
)

_CURSOR = re.compile(r"(\d{1,15})\.(\d{1,16})\.([A-Za-z0-9][A-Za-z0-9._-]{0,63})")
_MAX_PAGE = 1_000

_log = structlog.get_logger()


class Rename(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of PATCH."""

    title: Annotated[str, Meta(min_length=1, max_length=80)]


class Fork(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of POST .../fork."""

    at: Annotated[int, Meta(ge=0, le=2**53)]
    id: str


class Sessions:
    """The handlers. Used on the hub's loop."""

    def __init__(self, verifier: Verifier, library: Library) -> None:
        self._verifier = verifier
        self._library = library

    def routes(self) -> list[web.RouteDef]:
        """Where they answer."""
        one = "/v1/sessions/{id}"
        return [
            web.get("/v1/sessions", self.page, allow_head=False),
            web.get("/v1/sessions/search", self.search, allow_head=False),
            web.get(one, self.show, allow_head=False),
            web.patch(one, self.rename),
            web.delete(one, self.delete),
            web.get(f"{one}/export", self.export, allow_head=False),
            web.post(f"{one}/fork", self.fork),
        ]

    async def page(self, request: web.Request) -> web.Response:
        """GET /v1/sessions: some, the latest first; ``next`` goes into ``after``."""
        handle = await authenticate(request, self._verifier)
        limit = _number(request, "limit", 50, 1, _MAX_PAGE)
        after = _cursor(request)
        with explained():
            rows = await self._library.page(handle, limit, after)
        following = Cursor(rows[-1].updated_s, rows[-1].id) if len(rows) == limit else None
        return as_json(
            {"object": "list", "data": [session_object(r) for r in rows], "next": _said(following)}
        )

    async def show(self, request: web.Request) -> web.Response:
        """GET /v1/sessions/ID: it, and some of its messages past ``after``."""
        handle = await authenticate(request, self._verifier)
        after = _number(request, "after", 0, 0, 2**53)
        limit = _number(request, "limit", 100, 1, _MAX_PAGE)
        with explained():
            found, page = await self._library.messages(handle, request.match_info["id"], after, limit)
        first = page.last_seq - len(page.messages) + 1
        rows = [message_object(first + i, message) for i, message in enumerate(page.messages)]
        return as_json({**session_object(found), "data": rows, "next": page.last_seq if page.more else None})

    async def rename(self, request: web.Request) -> web.Response:
        """PATCH /v1/sessions/ID: ``{"title": TEXT}``."""
        handle = await authenticate(request, self._verifier)
        asked = await parsed(request, Rename, handle)
        if not asked.title.isprintable():
            raise invalid("a title is one line of text", "invalid_value", "title")
        with explained():
            return as_json(
                session_object(await self._library.rename(handle, request.match_info["id"], asked.title))
            )

    async def delete(self, request: web.Request) -> web.Response:
        """DELETE /v1/sessions/ID: it and all that belongs to it; 409 while a turn runs in it."""
        handle = await authenticate(request, self._verifier)
        session = request.match_info["id"]
        with explained():
            await self._library.delete(handle, session)
        return as_json({"object": "session", "id": session, "deleted": True})

    async def search(self, request: web.Request) -> web.Response:
        """GET /v1/sessions/search: messages and titles that contain ``q``, the latest first."""
        handle = await authenticate(request, self._verifier)
        words = request.query.get("q", "").strip()
        if not 1 <= len(words) <= 200:
            raise invalid("`q` is 1 to 200 characters to look for", "invalid_value", "q")
        limit = _number(request, "limit", 50, 1, 200)
        start = _cursor(request)
        with explained():
            found = await self._library.search(handle, words, start, limit)
        hits = [
            {"object": "hit", "session": h.session, "title": h.title, "seq": h.seq, "role": h.role or None,
             "snippet": h.snippet}
            for h in found.hits
        ]  # fmt: skip
        return as_json({"object": "list", "data": hits, "next": _said(found.next)})

    async def fork(self, request: web.Request) -> web.Response:
        """POST /v1/sessions/ID/fork: ``{"at": SEQ, "id": NEW}``, a new one with the first messages."""
        handle = await authenticate(request, self._verifier)
        asked = await parsed(request, Fork, handle)
        with explained():
            made = await self._library.fork(handle, request.match_info["id"], asked.at, asked.id)
        return as_json(session_object(made), 201)

    async def export(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/sessions/ID/export: all of it, as ``format`` json or markdown."""
        handle = await authenticate(request, self._verifier)
        kind = EXPORTS.get(request.query.get("format", "json"))
        if kind is None:
            raise invalid("`format` is json or markdown", "invalid_value", "format")
        with explained():
            found = await self._library.find(handle, request.match_info["id"])
        shape = kind()
        response = web.StreamResponse(
            headers={
                "Content-Type": f"{shape.content_type}; charset=utf-8",
                "Content-Disposition": disposition(f"{found.id}.{shape.ending}"),
            }
        )
        with whole_or_broken(request, response), explained():
            data, seq = shape.head(found), 1
            async for page in self._library.all_messages(handle, found):
                await write(request, response, data + shape.messages(seq, page.messages))
                data, seq = b"", page.last_seq + 1
            await write(request, response, shape.tail())
        await response.write_eof()
        return response


@contextmanager
def explained() -> Iterator[None]:
    """What the sessions say, as an answer."""
    try:
        yield
    except CoreError as error:
        raise refusal(error) from None


def refusal(error: CoreError) -> CoreError:
    """What the sessions say, as a HubError; any other error as it is."""
    match error:
        case NoSuchSession():
            return HubError(404, str(error), "session_not_found", param="id")
        case SessionNameError():
            return invalid(str(error), "invalid_session_id", "id")
        case SessionExists():
            return HubError(409, str(error), "session_exists", param="id")
        case SessionBusy():
            return HubError(409, str(error), "session_busy", param="id", retry_after_s=2)
        case SessionTooLong():
            return invalid(str(error), "limit", "at")
        case StorageError() | SealError():
            return from_storage(error)
    return error


def _number(request: web.Request, name: str, default: int, least: int, most: int) -> int:
    text = request.query.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"[0-9]{1,16}", text) or not least <= int(text) <= most:
        raise invalid(f"`{name}` is a number from {least} to {most}", "invalid_value", name)
    return int(text)


def _cursor(request: web.Request) -> Cursor | None:
    text = request.query.get("after")
    if text is None:
        return None
    match = _CURSOR.fullmatch(text)
    if match is None:
        raise invalid("`after` is what `next` was in the answer before", "invalid_value", "after")
    return Cursor(int(match[1]), match[3], min(int(match[2]), 2**53))


def _said(cursor: Cursor | None) -> str | None:
    return None if cursor is None else f"{cursor.updated_s}.{cursor.seq}.{cursor.session}"
