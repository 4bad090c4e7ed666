"""POST /v1/chat/completions: a client's request becomes a turn, the turn's log becomes its answer."""

import asyncio
import time
from contextlib import aclosing

import structlog
from aiohttp import web

from core.hub.agents import AgentFileError, Agents, NoSuchAgent
from core.hub.answer import KEEP_ALIVE, Answer, error_event
from core.hub.errors import HubError, from_failure, invalid
from core.hub.request import ChatRequest, history, last_user_message, parse_chat
from core.hub.tokens import Verifier, authenticate
from core.hub.turns import SESSION_HEADER, RunningTurn, Starter
from core.metrics import Metrics
from core.sessions import Behind, Finished, LogEvent
from jail.wire.schema import Agent, Delta, Failure, ToolStarted

EVENTS_HEADER = "X-Certosa-Events"
TURN_HEADER = "X-Certosa-Turn"

_READ_TIMEOUT_S = 60.0
KEEP_ALIVE_S = 15.0
STALL_S = 30.0
"""How long a client may leave what it was sent unread."""
_BACKSTOP_S = 120.0
"""Past a turn's own time limit: the user's actor should have ended it long ago."""
_MAX_ANSWER_CHARS = 16 << 20

_log = structlog.get_logger()


class ClientStalled(ConnectionError):
    """The client doesn't read."""


class Chat:
    """The handler. Used on the hub's loop.

    Args:
        stall_s: how long a write to a client may wait (in seconds).
        keep_alive_s: a stream that is silent so long gets a comment (in seconds).
    """

    def __init__(
        self,
        verifier: Verifier,
        agents: Agents,
        starter: Starter,
        metrics: Metrics,
        stall_s: float = STALL_S,
        keep_alive_s: float = KEEP_ALIVE_S,
    ) -> None:
        self._verifier = verifier
        self._agents = agents
        self._starter = starter
        self._metrics = metrics
        self._stall_s = stall_s
        self._keep_alive_s = keep_alive_s

    async def completions(self, request: web.Request) -> web.StreamResponse:
        """Answer one request; raises HubError until a stream has begun."""
        asked_s = time.monotonic()
        handle = await authenticate(request, self._verifier)
        session_id = _one_header(request, SESSION_HEADER)
        events = _switch(request, EVENTS_HEADER)
        chat = parse_chat(await read_body(request))
        messages = history(chat)
        if session_id is not None:
            messages = [last_user_message(messages)]
        agent = self._agent(handle.user, chat.model)
        turn = await self._starter.start(handle, agent, messages, session_id, chat.sampling, asked_s)
        try:
            answer = Answer(turn.id, chat.model, events)
            if chat.stream:
                return await self._stream(request, chat, agent, turn, answer, asked_s)
            return await self._whole(agent, turn, answer, asked_s)
        finally:
            # the client left, stopped reading, or we failed: its own turn has nobody to go on for
            if not turn.kept:
                self._starter.cancel(turn)

    def _agent(self, user: str, name: str) -> Agent:
        try:
            return self._agents.get(user, name)
        except NoSuchAgent as error:
            raise HubError(404, str(error), "model_not_found", param="model") from None
        except AgentFileError as error:
            raise invalid(str(error), "invalid_agent", "model") from None

    async def _whole(self, agent: Agent, turn: RunningTurn, answer: Answer, asked_s: float) -> web.Response:
        text: list[str] = []
        size, acted = 0, turn.kept
        async with aclosing(turn.log.watch(idle_s=self._keep_alive_s)) as found:
            async for batch in found:
                if isinstance(batch, Finished):
                    if isinstance(batch.outcome, Failure):
                        raise from_failure(batch.outcome, acted)
                    body = answer.whole("".join(text), batch.outcome)
                    return web.Response(body=body, content_type="application/json", headers=_headers(turn))
                if isinstance(batch, Behind):
                    break
                for event in batch:
                    acted = acted or isinstance(event.item, ToolStarted)
                    if isinstance(event.item, Delta) and event.item.text:
                        if not text:
                            self._metrics.first_token(time.monotonic() - asked_s)
                        text.append(event.item.text)
                        size += len(event.item.text)
                if size > _MAX_ANSWER_CHARS:
                    raise HubError(
                        400, "the answer is too long to be sent at once: use stream", "limit",
                        headers={"x-should-retry": "false"},
                    )  # fmt: skip
                self._check_backstop(agent, asked_s)
        raise _behind()

    async def _stream(
        self,
        request: web.Request,
        chat: ChatRequest,
        agent: Agent,
        turn: RunningTurn,
        answer: Answer,
        asked_s: float,
    ) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={
                **_headers(turn),
                "Content-Type": "text/event-stream; charset=utf-8",
                "X-Accel-Buffering": "no",
            }
        )
        include_usage = bool(chat.stream_options and chat.stream_options.include_usage)
        acted, spoke = turn.kept, False
        try:
            async with aclosing(turn.log.watch(idle_s=self._keep_alive_s)) as found:
                async for batch in found:
                    if isinstance(batch, Finished):
                        if isinstance(batch.outcome, Failure):
                            raise from_failure(batch.outcome, acted)
                        await self._write(request, response, answer.last(batch.outcome, include_usage))
                        break
                    if isinstance(batch, Behind):
                        raise _behind()
                    acted = acted or any(isinstance(e.item, ToolStarted) for e in batch)
                    self._check_backstop(agent, asked_s)
                    data = answer.chunks(batch) if batch else KEEP_ALIVE
                    if data:
                        await self._write(request, response, data)
                    if not spoke and _speaks(batch):
                        spoke = True
                        self._metrics.first_token(time.monotonic() - asked_s)
        except HubError as error:
            if not response.prepared:
                raise
            response.force_close()
            await self._write(request, response, error_event(error))
        await response.write_eof()
        return response

    async def _write(self, request: web.Request, response: web.StreamResponse, data: bytes) -> None:
        """Send some bytes, with the headers before the first; ends the connection on a stall."""
        try:
            async with asyncio.timeout(self._stall_s):
                if not response.prepared:
                    await response.prepare(request)
                await response.write(data)
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
            raise ClientStalled("the client stopped reading") from None

    def _check_backstop(self, agent: Agent, asked_s: float) -> None:
        if time.monotonic() - asked_s > agent.limits.wall_s + _BACKSTOP_S:
            raise HubError(504, "the turn did not end at its time limit", "timeout")


async def read_body(request: web.Request) -> bytes:
    """A request's body, bounded by the application's limit and in time; HubError otherwise."""
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise HubError(415, "send the body uncompressed", "unsupported_encoding")
    try:
        async with asyncio.timeout(_READ_TIMEOUT_S):
            return await request.read()
    except TimeoutError:
        raise HubError(408, "the body did not come in time", "request_timeout") from None


def _headers(turn: RunningTurn) -> dict[str, str]:
    return {TURN_HEADER: turn.id}


def _speaks(batch: tuple[LogEvent, ...]) -> bool:
    return any(isinstance(event.item, Delta) and event.item.text for event in batch)


def _behind() -> HubError:
    return HubError(
        429, "this client read too slowly and fell out of the turn's log", "reader_behind",
        headers={"x-should-retry": "false"},
    )  # fmt: skip


def _one_header(request: web.Request, name: str) -> str | None:
    found = request.headers.getall(name, [])
    if len(found) > 1:
        raise invalid(f"the {name} header came more than once", "duplicate_header", name)
    return found[0] if found else None


def _switch(request: web.Request, name: str) -> bool:
    value = (_one_header(request, name) or "off").lower()
    if value not in ("on", "off"):
        raise invalid(f"{name} is `on` or `off`", "invalid_value", name)
    return value == "on"
