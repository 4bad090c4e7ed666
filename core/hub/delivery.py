"""A turn for a client: started, its log followed, its events sent in the shape the client speaks."""

import time
from collections.abc import Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

import structlog
from aiohttp import web

from core.acting import current_request
from core.errors import CoreError
from core.hub.agents import AgentFileError, Agents, NoSuchAgent
from core.hub.errors import HubError, from_failure, invalid
from core.hub.turns import RunningTurn, Starter
from core.hub.writing import write
from core.metrics import Metrics
from core.sessions import Behind, Finished, Labels, Library, LogEvent
from core.vault.handle import UserHandle
from jail.wire.schema import Agent, Delta, Failure, Message, Notice, Sampling, ToolStarted, TurnEnd

TURN_HEADER = "X-Certosa-Turn"
NOTICE_HEADER = "X-Certosa-Notice"
"""Where a soft limit of the day's was reached before the answer began."""

KEEP_ALIVE_S = 15.0
STALL_S = 30.0
"""How long a client may leave what it was sent unread."""
_BACKSTOP_S = 120.0
"""Past a turn's own time limit: the user's actor should have ended it long ago."""
_MAX_ANSWER_CHARS = 16 << 20
_MAX_NOTICE_CHARS = 500

_log = structlog.get_logger()


class Shape(Protocol):
    """How one answer looks, in the words of one API."""

    def whole(self, text: str, end: TurnEnd) -> bytes:
        """An answer that isn't streamed, as JSON."""
        ...

    def chunks(self, events: Iterable[LogEvent]) -> bytes:
        """Some events of a stream. May be empty."""
        ...

    def keep_alive(self) -> bytes:
        """What tells a client of a silent stream that it goes on."""
        ...

    def last(self, end: TurnEnd) -> bytes:
        """What closes a stream that ended well."""
        ...

    def failed(self, error: HubError) -> bytes:
        """What closes a stream that has begun and failed."""
        ...


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a client asked for.

    ``shape`` makes the answer's shape from the turn's id; ``asked_s`` is when the request came
    (monotonic, in seconds).
    """

    handle: UserHandle
    agent: str
    messages: list[Message]
    session_id: str | None
    sampling: Sampling
    stream: bool
    shape: Callable[[str], Shape]
    asked_s: float
    labels: Labels


class Delivery:
    """Used on the hub's loop.

    Args:
        held_s: how long a turn may wait for its user's answers, beside its own time (in seconds).
        stall_s: how long a write to a client may wait (in seconds).
        keep_alive_s: a stream that is silent so long gets a sign of life (in seconds).
    """

    def __init__(
        self,
        agents: Agents,
        starter: Starter,
        metrics: Metrics,
        library: Library,
        held_s: float,
        stall_s: float = STALL_S,
        keep_alive_s: float = KEEP_ALIVE_S,
    ) -> None:
        self._agents = agents
        self._starter = starter
        self._metrics = metrics
        self._library = library
        self._held_s = held_s
        self._stall_s = stall_s
        self._keep_alive_s = keep_alive_s

    async def deliver(self, request: web.Request, wanted: Wanted) -> web.StreamResponse:
        """Run a turn and answer with it; raises HubError until a stream has begun."""
        agent = find_agent(self._agents, wanted.handle.user, wanted.agent)
        turn = await self._starter.start(
            wanted.handle, agent, wanted.messages, wanted.session_id, wanted.sampling, wanted.asked_s
        )
        try:
            await self._keep_labels(wanted, turn.id)
            answer = wanted.shape(turn.id)
            if wanted.stream:
                return await self._stream(request, agent, turn, answer, wanted.asked_s)
            return await self._whole(agent, turn, answer, wanted.asked_s)
        finally:
            # the client left, stopped reading, or we failed: its own turn has nobody to go on for
            if not turn.kept:
                self._starter.cancel(turn)

    async def _keep_labels(self, wanted: Wanted, turn: str) -> None:
        """In the session, or where there is none in the log."""
        labels = wanted.labels
        if wanted.session_id is not None:
            if labels != Labels():
                try:
                    await self._library.label(wanted.handle, wanted.session_id, labels)
                except CoreError as error:
                    # the turn runs, and what it says is worth more than what was said of it
                    _log.warning("labels_not_stored", turn=turn, error=type(error).__name__)
            labels = Labels()
        _log.info(
            "turn_accepted", user=wanted.handle.user, turn=turn, agent=wanted.agent,
            kept=wanted.session_id is not None, **_said(labels),
        )  # fmt: skip

    async def _whole(self, agent: Agent, turn: RunningTurn, answer: Shape, asked_s: float) -> web.Response:
        text: list[str] = []
        headers = _headers(turn)
        size, acted = 0, turn.kept
        async with aclosing(turn.log.watch(idle_s=self._keep_alive_s)) as found:
            async for batch in found:
                if isinstance(batch, Finished):
                    if isinstance(batch.outcome, Failure):
                        raise from_failure(batch.outcome, acted)
                    body = answer.whole("".join(text), batch.outcome)
                    return web.Response(body=body, content_type="application/json", headers=headers)
                if isinstance(batch, Behind):
                    break
                headers.update(_notices(batch))
                for event in batch:
                    acted = acted or isinstance(event.item, ToolStarted)
                    if isinstance(event.item, Delta) and event.item.text:
                        if not text:
                            self._metrics.first_token(time.monotonic() - asked_s, current_request())
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
        agent: Agent,
        turn: RunningTurn,
        answer: Shape,
        asked_s: float,
    ) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={
                **_headers(turn),
                "Content-Type": "text/event-stream; charset=utf-8",
                "X-Accel-Buffering": "no",
            }
        )
        acted, spoke = turn.kept, False
        try:
            async with aclosing(turn.log.watch(idle_s=self._keep_alive_s)) as found:
                async for batch in found:
                    if isinstance(batch, Finished):
                        if isinstance(batch.outcome, Failure):
                            raise from_failure(batch.outcome, acted)
                        await write(request, response, answer.last(batch.outcome), self._stall_s)
                        break
                    if isinstance(batch, Behind):
                        raise _behind()
                    acted = acted or any(isinstance(e.item, ToolStarted) for e in batch)
                    if not response.prepared:
                        response.headers.update(_notices(batch))
                    self._check_backstop(agent, asked_s)
                    data = answer.chunks(batch) if batch else answer.keep_alive()
                    if data:
                        await write(request, response, data, self._stall_s)
                    if not spoke and _speaks(batch):
                        spoke = True
                        self._metrics.first_token(time.monotonic() - asked_s, current_request())
        except HubError as error:
            if not response.prepared:
                raise
            response.force_close()
            await write(request, response, answer.failed(error), self._stall_s)
        await response.write_eof()
        return response

    def _check_backstop(self, agent: Agent, asked_s: float) -> None:
        if time.monotonic() - asked_s > agent.limits.wall_s + self._held_s + _BACKSTOP_S:
            raise HubError(504, "the turn did not end at its time limit", "timeout")


def find_agent(agents: Agents, user: str, name: str, param: str = "model") -> Agent:
    """An agent of a user's that ``param`` of a request named; HubError 400, 404."""
    try:
        return agents.get(user, name)
    except NoSuchAgent as error:
        raise HubError(404, str(error), f"{param}_not_found", param=param) from None
    except AgentFileError as error:
        raise invalid(str(error), "invalid_agent", param) from None


def _said(labels: Labels) -> dict[str, object]:
    """What the client said of a request, as the log has it; bounded by the request's own fields."""
    user = {"client_user": labels.user} if labels.user else {}
    return {**user, **({"client_metadata": labels.metadata} if labels.metadata else {})}


def _headers(turn: RunningTurn) -> dict[str, str]:
    return {TURN_HEADER: turn.id}


def _notices(batch: tuple[LogEvent, ...]) -> dict[str, str]:
    """A soft limit that was reached, as a header; its text went through a jail's log and is cleaned."""
    for event in batch:
        if isinstance(event.item, Notice) and event.item.kind == "usage":
            text = "".join(c if " " <= c <= "~" else "?" for c in event.item.text[:_MAX_NOTICE_CHARS])
            return {NOTICE_HEADER: text}
    return {}


def _speaks(batch: tuple[LogEvent, ...]) -> bool:
    return any(isinstance(event.item, Delta) and event.item.text for event in batch)


def _behind() -> HubError:
    return HubError(
        429, "this client read too slowly and fell out of the turn's log", "reader_behind",
        headers={"x-should-retry": "false"},
    )  # fmt: skip
