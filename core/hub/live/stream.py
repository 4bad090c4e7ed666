"""GET /v1/sessions/ID/events: a session's events as server-sent events (HTML standard, 9.2).

Each has its ``id:`` line, so a client that comes back says in Last-Event-ID where it was. There are
no ``event:`` lines: all come as messages, and their ``type`` says what they are.
"""

import asyncio
import re
from collections.abc import Sequence
from contextlib import closing

import msgspec
import structlog
from aiohttp import web

from core.errors import CoreError
from core.hub.chat import one_header
from core.hub.errors import invalid
from core.hub.live.endings import MESSAGES
from core.hub.live.events import line_of
from core.hub.live.parts import LiveParts
from core.hub.live.requests import WatchEnd, WatchEnded
from core.hub.live.socket import lost_error
from core.hub.live.streams import Streams
from core.hub.sessions import explained
from core.hub.tokens import authenticate, token_of
from core.hub.writing import ClientStalled
from core.sessions import Lost, SessionEvent, Watch

_ID = re.compile(r"[0-9]{1,16}")
_FIRST = b"retry: 1000\n\n"
_KEEP_ALIVE = b": still here\n\n"

_encode = msgspec.json.Encoder().encode
_log = structlog.get_logger()


class EventStreams:
    """The handler. Used on the hub's loop."""

    def __init__(self, parts: LiveParts, streams: Streams) -> None:
        self._parts = parts
        self._streams = streams

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Send events past ``after`` or Last-Event-ID; with ``until=idle`` end when no turn runs.

        204 where there is nothing to send then; 404, 410 where the place is none.
        """
        handle = await authenticate(request, self._parts.verifier)
        after, until_idle = _place(request), _until_idle(request)
        with explained():
            watch = await self._parts.sessions.watch(handle, request.match_info["id"], after)
        if isinstance(watch, Lost):
            raise lost_error(watch)
        with closing(watch):
            stream = _Stream(request, watch, self._parts, until_idle)
            with self._streams.open(handle, token_of(request), "sse", stream.end):
                if until_idle and not watch.has_more():
                    return web.Response(status=204)
                return await stream.run()


class _Stream:
    def __init__(self, request: web.Request, watch: Watch, parts: LiveParts, until_idle: bool) -> None:
        self._request, self._watch, self._parts = request, watch, parts
        self._until_idle = until_idle
        self._why: WatchEnd | None = None
        self._response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream; charset=utf-8", "X-Accel-Buffering": "no"}
        )

    def end(self, why: WatchEnd) -> None:
        """End the stream."""
        self._why = why
        self._watch.stop(at_once=why != "stopping")
        if self._request.protocol.writing_paused and self._request.transport is not None:
            self._request.transport.abort()  # a client that doesn't read is not waited for

    async def run(self) -> web.StreamResponse:
        """Send until the end."""
        await self._response.prepare(self._request)
        await self._write(_FIRST)
        try:
            ended = await self._send_events()
        except CoreError as error:
            _log.error("watch_failed", error=str(error))
            ended = self._ended("unavailable")
        if ended:
            await self._write(ended)
        await self._response.write_eof()
        return self._response

    async def _send_events(self) -> bytes:
        """Send all that comes; returns what closes the stream."""
        watch, session = self._watch, self._watch.session
        silent_s = 0.0
        while silent_s < self._parts.config.idle_s:
            found = await watch.next(self._parts.keep_alive_s, self._until_idle)
            if isinstance(found, Lost):
                why: WatchEnd = "deleted" if found.reason == "deleted" else "behind"
                return self._ended(why, found.oldest or None)
            if found is None:
                return self._ended(self._why) if self._why is not None else b""
            if not found:
                silent_s += self._parts.keep_alive_s
                await self._write(_KEEP_ALIVE)
                continue
            silent_s = 0.0
            self._parts.metrics.events_sent(len(found))
            await self._write(_lines(session, found))
        return self._ended("idle")

    def _ended(self, why: WatchEnd, oldest: int | None = None) -> bytes:
        ended = WatchEnded(self._watch.session, self._watch.after, why, MESSAGES[why], oldest)
        return b"data: " + _encode(ended) + b"\n\n"

    async def _write(self, data: bytes) -> None:
        try:
            async with asyncio.timeout(self._parts.stall_s):
                await self._response.write(data)
        except TimeoutError:
            if self._request.transport is not None:
                self._request.transport.abort()
            raise ClientStalled("the client stopped reading") from None


def _lines(session: str, events: Sequence[SessionEvent]) -> bytes:
    return b"".join(b"id: %d\ndata: %b\n\n" % (event.id, line_of(session, event)) for event in events)


def _place(request: web.Request) -> int | None:
    """Where to begin after: the header, which a client that comes back sends, goes before the URL."""
    header = one_header(request, "Last-Event-ID")
    text, name = (header, "Last-Event-ID") if header else (request.query.get("after"), "after")
    if text is None:
        return None
    if not _ID.fullmatch(text) or int(text) > 2**53:
        raise invalid(f"{name} is the id of an event, or 0", "invalid_value", name)
    return int(text)


def _until_idle(request: web.Request) -> bool:
    until = request.query.get("until", "")
    if until not in ("", "idle"):
        raise invalid("`until` is `idle`, or left out", "invalid_value", "until")
    return bool(until)
