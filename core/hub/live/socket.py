"""One WebSocket: requests in, answers and the events of watched sessions out.

Requests are carried out one after the other; each watched session has a task of its own that reads
the log at this client's speed. Whatever ends the connection sets one future, once.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
import structlog
from aiohttp import WSMsgType, web

from core.acting import acting, fresh_request
from core.errors import CoreError, SealError
from core.hub.approvals import answer as answer_approval
from core.hub.connection import Connection
from core.hub.errors import HubError, invalid
from core.hub.live import requests as said
from core.hub.live.endings import CLOSE_CODES, MESSAGES, reason
from core.hub.live.events import line_of
from core.hub.live.frames import Gauge, Gauged
from core.hub.live.handshake import PROTOCOL
from core.hub.live.limits import Bucket
from core.hub.live.outgoing import Outgoing
from core.hub.live.parts import LiveParts
from core.hub.live.requests import WatchEnd
from core.hub.live.starting import Starting
from core.hub.sessions import refusal
from core.hub.writing import ClientStalled
from core.sessions import Lost, Watch
from core.vault.handle import UserHandle

_QUEUE = 32
"""Requests that wait for the one before."""
_PATIENCE = 64
"""Requests in a row that were refused unread; then the client is shown out."""
_CONTROL_PER_S, _CONTROL_BURST = 5.0, 100.0
"""Pings and pongs of a client's: each is read and answered on everybody's loop."""
_SMALL_FRAMES = 2.0, 100.0
"""For each request a second so many small frames, and so many more at once."""
_MESSAGES_PER_S, _MESSAGES_BURST = 4.0, 8.0
"""Of the longest: faster than that nothing is read."""
_CLOSING_S = 2.0
_LINGER_S = 5.0
"""What a closed connection may take to send what is left."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(said.AnyRequest).decode

_log = structlog.get_logger()


class Socket:
    """A connection of one user's, from its upgrade to its end."""

    def __init__(self, parts: LiveParts, starting: Starting, handle: UserHandle) -> None:
        self._parts = parts
        self._config = parts.config
        self._starting = starting
        self._handle = handle
        self._loop = asyncio.get_running_loop()
        self._ending: asyncio.Future[WatchEnd | None] = self._loop.create_future()
        self._queue: asyncio.Queue[said.AnyRequest] = asyncio.Queue(_QUEUE)
        self._watches: dict[str, tuple[Watch, asyncio.Task[None]]] = {}
        self._last: dict[str, int] = {}
        self._active_s = self._loop.time()
        rate_per_s = self._config.requests_per_s
        self._bucket = Bucket(rate_per_s, 2 * rate_per_s, self._active_s)
        self._control = Bucket(_CONTROL_PER_S, _CONTROL_BURST, self._active_s)
        self._out: Outgoing
        self._request: web.Request

    def end(self, why: WatchEnd | None) -> None:
        """End the connection; None: it has ended by itself. Only the first reason counts."""
        if not self._ending.done():
            self._ending.set_result(why)

    async def run(self, request: web.Request) -> web.WebSocketResponse:
        """Serve until the end; HubError and web.HTTPException before the upgrade."""
        self._request = request
        if isinstance(request.protocol, Connection):
            request.protocol.gauged = partial(Gauged, gauge=self._gauge(request.protocol))
        ws = web.WebSocketResponse(
            protocols=(PROTOCOL,),
            compress=False,
            autoping=False,  # the library would answer any number of pings in a row, and nobody else
            heartbeat=self._config.ping_s,
            max_msg_size=int(self._config.message_bytes),
            timeout=_CLOSING_S,
        )
        writer = await ws.prepare(request)
        self._out = Outgoing(request, writer.drain, self._parts.stall_s)
        tasks = [self._task(partial(self._read, ws), "ws-read"), self._task(self._work, "ws-work")]
        try:
            why = await self._ending
            await _cancelled(tasks)
            if why is not None:
                await self._say_goodbye(ws, why)
        finally:
            for task in tasks:
                task.cancel()
            for watch, task in self._watches.values():
                watch.close()
                task.cancel()
            self._out.close()
        await ws.close()
        return ws

    # -- the end ----------------------------------------------------------------------------------------

    async def _say_goodbye(self, ws: web.WebSocketResponse, why: WatchEnd) -> None:
        """Say of each watch where it stands, then close; a stopping server first gives what is there."""
        followers = [task for _, task in self._watches.values()]
        if why == "stopping" and not self._out.stalled and followers:
            for watch, _ in self._watches.values():
                watch.stop(at_once=False)
            await asyncio.wait(followers, timeout=_CLOSING_S / 2)
        await _cancelled(followers)
        try:
            self._out.write([self._ended(watch, why) for watch, _ in self._watches.values()])
            self._last |= {name: watch.after for name, (watch, _) in self._watches.items()}
            await ws.close(code=CLOSE_CODES[why], message=reason(why, self._last), drain=False)
        except ConnectionError:
            return
        if (transport := self._request.transport) is not None:
            self._loop.call_later(_LINGER_S, transport.abort)

    def _ended(self, watch: Watch, why: WatchEnd, oldest: int | None = None) -> bytes:
        return _encode(said.WatchEnded(watch.session, watch.after, why, MESSAGES[why], oldest))

    def _task(self, work: Callable[[], Awaitable[None]], name: str) -> asyncio.Task[None]:
        return asyncio.create_task(self._guarded(work), name=name)

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except ClientStalled:
            self.end("slow")
        except ConnectionError:
            self.end(None)
        except Exception:  # noqa: BLE001 - a bug: logged, and this connection's end alone
            _log.exception("socket_crashed")
            self.end("internal")

    # -- requests ---------------------------------------------------------------------------------------

    async def _read(self, ws: web.WebSocketResponse) -> None:
        refused = 0
        while True:
            idle_s = self._active_s + self._config.idle_s - self._loop.time()
            if idle_s <= 0:
                self.end("idle")
                return
            try:
                message = await ws.receive(timeout=idle_s)
            except TimeoutError:
                continue
            if message.type in (WSMsgType.PING, WSMsgType.PONG):
                if not self._control.take(self._loop.time()):
                    self._flooded()
                    return
                if message.type is WSMsgType.PING:
                    await ws.pong(message.data)
                continue
            if message.type is not WSMsgType.TEXT:
                self.end("policy" if message.type is WSMsgType.BINARY else None)
                return
            self._active_s = self._loop.time()
            error = self._take(message.data)
            refused = refused + 1 if error is not None else 0
            if error is not None:
                await self._answer(_refused(_ref(message.data), error))
            if refused > _PATIENCE:
                self.end("policy")
                return

    def _gauge(self, connection: Connection) -> Gauge:
        per_request, more = _SMALL_FRAMES
        frames_per_s, message_bytes = per_request * self._config.requests_per_s, self._config.message_bytes
        return Gauge(
            Bucket(frames_per_s + _CONTROL_PER_S, frames_per_s + more, self._active_s),
            Bucket(_MESSAGES_PER_S * message_bytes, _MESSAGES_BURST * message_bytes, self._active_s),
            self._loop.time,
            self._flooded,
            connection.hold,
        )

    def _flooded(self) -> None:
        # what else it sends stays with it: reading that until it closes would cost as much
        if isinstance(self._request.protocol, Connection):
            self._request.protocol.hold(None)
        self.end("policy")

    def _take(self, text: str) -> HubError | None:
        """Queue a request; what is wrong with it, if something is."""
        if not self._bucket.take(self._loop.time()) or self._queue.full():
            return HubError(
                429, "too many requests at once; wait a moment", "too_many_requests", retry_after_s=1
            )
        try:
            self._queue.put_nowait(_decode(text))
        except msgspec.ValidationError as error:
            return invalid(f"the request will not do: {error}", "invalid_value")
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return invalid("the request is not JSON", "invalid_json")
        return None

    async def _work(self) -> None:
        while True:
            request = await self._queue.get()
            try:
                with acting(fresh_request()):
                    await self._carry_out(request)
            except HubError as error:
                await self._answer(_refused(request.ref, error))
            except CoreError as error:
                known = refusal(error)
                if not isinstance(known, HubError):
                    raise
                await self._answer(_refused(request.ref, known))

    async def _carry_out(self, request: said.AnyRequest) -> None:
        match request:
            case said.Start():
                await self._start(request)
            case said.Cancel():
                self._parts.starter.cancel_by_id(self._handle.user, request.turn)
                await self._answer(said.Cancelling(request.ref, request.turn))
            case said.Watch():
                self._check_room(request.session)
                found = await self._parts.sessions.watch(self._handle, request.session, request.after)
                if isinstance(found, Lost):
                    await self._answer(_lost(request.ref, found))
                    return
                self._follow(found)
                await self._answer(said.Watching(request.ref, request.session, found.after))
            case said.Unwatch():
                watch, task = self._watches.pop(request.session, (None, None))
                if watch is None or task is None:
                    raise HubError(404, "this session is not watched here", "not_watched")
                task.cancel()
                watch.close()
                await self._answer(said.Unwatched(request.ref, request.session, watch.after))
            case said.Approve() | said.Refuse():
                allow = isinstance(request, said.Approve)
                await answer_approval(self._parts.approvals, self._handle, request.approval, allow)
                await self._answer(said.Decided(request.ref, request.approval, allow))
            case said.Ping():
                await self._answer(said.Pong(request.ref))

    async def _start(self, request: said.Start) -> None:
        if request.watch and request.session not in self._watches:
            self._check_room(request.session)
        asked = said.TurnAsked(request.text, request.agent, request.key, request.sampling)
        began = await self._starting.start(self._handle, request.session, asked)
        await self._answer(said.Started(request.ref, request.session, began.turn, began.after))
        if not request.watch or request.session in self._watches:
            return
        found = await self._parts.sessions.watch(self._handle, request.session, began.after)
        if isinstance(found, Lost):
            await self._answer(
                said.WatchEnded(request.session, began.after, "behind", MESSAGES["behind"], found.oldest)
            )
        else:
            self._follow(found)

    def _check_room(self, session: str) -> None:
        if session in self._watches:
            raise HubError(409, "this session is watched here already", "already_watched")
        if len(self._watches) >= self._config.watches:
            raise HubError(
                429, f"{self._config.watches} sessions are watched here already", "too_many_watches"
            )

    async def _answer(self, answer: said.AnyAnswer) -> None:
        await self._out.send((_encode(answer),))

    # -- events -----------------------------------------------------------------------------------------

    def _follow(self, watch: Watch) -> None:
        # the task begins after its answer was written: that does not wait before its first write
        task = self._task(partial(self._send_events, watch), "ws-watch")
        self._watches[watch.session] = watch, task

    async def _send_events(self, watch: Watch) -> None:
        try:
            ended = await self._until_lost(watch)
        except SealError as error:
            _log.critical("record_not_opened", error=str(error))
            ended = self._ended(watch, "internal")
        except CoreError:
            ended = self._ended(watch, "unavailable")
        self._watches.pop(watch.session, None)
        self._last[watch.session] = watch.after
        watch.close()
        await self._out.send((ended,))

    async def _until_lost(self, watch: Watch) -> bytes:
        session, sent = watch.session, self._parts.metrics.events_sent
        while True:
            found = await watch.next()
            if found is None:
                return self._ended(watch, "stopping")
            if isinstance(found, Lost):
                why: WatchEnd = "deleted" if found.reason == "deleted" else "behind"
                return self._ended(watch, why, found.oldest or None)
            self._active_s = self._loop.time()
            sent(len(found))
            await self._out.send([line_of(session, event) for event in found])


async def _cancelled(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _ref(text: str) -> str:
    """The ``ref`` of a request that was refused as a whole, as far as it can be read."""
    try:
        return msgspec.json.decode(text, type=_Ref).ref
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return ""


class _Ref(msgspec.Struct, frozen=True):
    ref: said.Ref = ""


def _refused(ref: str, error: HubError) -> said.Refused:
    after = error.headers.get("Retry-After")
    return said.Refused(ref, error.status, error.code, error.message, int(after) if after else None)


def _lost(ref: str, lost: Lost) -> said.Refused:
    error: Any = lost_error(lost)
    return said.Refused(ref, error.status, error.code, error.message, None, lost.oldest, lost.last)


def lost_error(lost: Lost) -> HubError:
    """A place that is none of the log's, as HTTP says it: 410."""
    if lost.reason == "ahead":
        message = f"the session's newest event is {lost.last}: it is another one of the same name"
    else:
        message = f"the log was cut; its oldest event is {lost.oldest}: load the session and go on from there"
    return HubError(
        410, message, lost.reason, param="after", extra={"oldest": lost.oldest, "last": lost.last}
    )
