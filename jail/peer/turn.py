"""One turn: ask the model, run the tools it calls, keep what was said, again, until an end.

What ends it, and what the model sees, is decided elsewhere (:mod:`jail.peer.loop_state`,
:mod:`jail.peer.context`); this carries it out. Whichever way a turn ends, what was said and done so
far is in the session before its closing frame is sent, as far as core takes it in time.
"""

import asyncio
from typing import Any, Protocol

from jail.peer.clock import Clock
from jail.peer.context import cost_bytes, fit
from jail.peer.draft import Draft, batches
from jail.peer.edge import Request
from jail.peer.errors import AskFailed
from jail.peer.items import ItemQueue
from jail.peer.loop_state import LoopState, Stop
from jail.peer.toolbox import Toolbox
from jail.wire.schema import (
    Body,
    ChatCall,
    ChatDelta,
    ChatEnd,
    Delta,
    Failure,
    LogLine,
    Message,
    Notice,
    ProviderChat,
    SessionAppend,
    SessionLoad,
    TurnEnd,
    TurnStart,
)

_ASK_S = 30.0  # core's answer to a small question
# a cancelled turn closes within 2 s: tools are killed, then what was said is kept
_STOPPING_S = 1.0
_CLOSING_S = 0.7
_LOG_S = 0.2
_SILENCE_MARGIN_S = 5.0  # past the turn's own time, so that this is what ends it
_FLUSH_S = 10.0  # how long the last items may wait for credit
_CANCELLED = Failure("cancelled", "the turn was cancelled")


class Asker(Protocol):
    """What a turn needs of the edge."""

    async def ask(self, body: Body, timeout_s: float) -> Body:
        """One question, one answer; raises AskFailed."""
        ...

    async def stream(self, body: Body, silence_s: float) -> Request:
        """A request whose items are iterated."""
        ...


class Turn:
    """One turn's life; ``run`` is called once.

    Args:
        start: what core asked for.
        edge: to ask core.
        items: the turn's items for core.
        tools: runs the model's calls.
    """

    def __init__(self, start: TurnStart, edge: Asker, items: ItemQueue, tools: Toolbox) -> None:
        self._turn = start.turn
        self._agent = start.agent
        self._edge = edge
        self._items = items
        self._tools = tools
        self._state = LoopState(start.agent.limits)
        self._history: list[Message] = []
        self._draft = Draft()
        self._forgotten = 0
        self._told_forgotten = False
        self._spoke = False  # in an earlier message of this turn
        self._cancelled = asyncio.Event()
        self._keeping: asyncio.Future[None] | None = None
        self._clock: Clock | None = None
        self._held = False

    def cancel(self) -> None:
        """End the turn soon: the model's request, the tools, then ERROR ``cancelled``."""
        self._cancelled.set()

    def hold(self, held: bool) -> None:
        """A person is asked: the turn's time stands still; or it goes on."""
        self._held = held
        if self._clock is not None:
            self._clock.hold(held)

    async def run(self) -> TurnEnd | Failure:
        """Run the turn to its end; what is returned closes core's request."""
        work = asyncio.ensure_future(self._rounds())
        cancel = asyncio.ensure_future(self._cancelled.wait())
        self._clock = Clock(self._agent.limits.wall_s)
        self._clock.hold(self._held)
        try:
            ends: set[asyncio.Future[Any]] = {work, cancel, self._clock.up}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return await self._ended(work)
            work.cancel()
            await asyncio.wait({work}, timeout=_STOPPING_S)
            if work.done() and not work.cancelled():
                return await self._ended(work)  # it ended just before, or broke on its way out
            return await self._stopped()
        finally:
            cancel.cancel()
            self._clock.close()

    async def _ended(self, work: "asyncio.Future[Stop]") -> TurnEnd | Failure:
        try:
            stop = work.result()
        except AskFailed as failed:
            await self._keep_rest(f"the turn failed ({failed.failure.code})")
            return failed.failure if await self._flush() else _CANCELLED
        return await self._finish(stop)

    async def _stopped(self) -> TurnEnd | Failure:
        if self._cancelled.is_set():
            await self._keep_rest("the turn was cancelled")
            return _CANCELLED
        await self._keep_rest("the turn's time was up")
        wall_s = self._agent.limits.wall_s
        return await self._finish(Stop("wall", f"Stopped at the limit of {wall_s} s for a turn."))

    async def _finish(self, stop: Stop) -> TurnEnd | Failure:
        if stop.notice:
            self._items.add(Notice(stop.notice))
        return TurnEnd(stop.finish, self._state.usage) if await self._flush() else _CANCELLED

    async def _flush(self) -> bool:
        """Let the last items leave, for a while; False when the turn is cancelled meanwhile."""
        flushed = asyncio.ensure_future(self._items.flush(_FLUSH_S))
        cancel = asyncio.ensure_future(self._cancelled.wait())
        try:
            await asyncio.wait({flushed, cancel}, return_when=asyncio.FIRST_COMPLETED)
            return flushed.done()
        finally:
            flushed.cancel()
            cancel.cancel()

    # -- the loop ---------------------------------------------------------------------------------

    async def _rounds(self) -> Stop:
        await self._load()
        while True:
            stop = self._state.next_round()
            if stop is not None:
                return stop
            end = await self._ask_model()
            if end is None:
                await self._keep(self._draft.cut_short("the answer grew too long"))
                return Stop("length", "Stopped: the model's answer grew past what one message may be.")
            if not self._draft.calls:
                await self._keep(self._draft.whole())
                return Stop("stop" if end.finish == "tool_calls" else end.finish, "")
            stop = await self._tools.run_round(self._draft, self._state, self._items)
            await self._keep(
                self._draft.whole() if stop is None else self._draft.cut_short("a limit was reached")
            )
            if stop is not None:
                return stop

    async def _load(self) -> None:
        """The session's messages, of which no more is held than could ever be shown."""
        limits = self._agent.limits
        held = 0
        async with await self._edge.stream(SessionLoad(self._turn), _ASK_S) as request:
            async for item in request:
                self._history += item.messages
                held += sum(map(cost_bytes, item.messages))
                if held > 2 * limits.context_bytes or len(self._history) > 2 * limits.context_messages:
                    window = fit("", self._history, limits)
                    self._history = window.messages
                    self._forgotten += window.dropped
                    held = sum(map(cost_bytes, self._history))
        if not any(message.role == "user" for message in self._history):
            raise AskFailed(Failure("invalid", "the session has no message to answer"))

    async def _ask_model(self) -> ChatEnd | None:
        """Stream the model's next message into the draft and to core; None where it grew too long."""
        self._draft = Draft()
        limits = self._agent.limits
        window = fit(self._agent.prompt, self._history, limits)
        await self._tell_dropped(self._forgotten + window.dropped, window.cut)
        body = ProviderChat(self._turn, tuple(window.messages), self._tools.specs)
        async with await self._edge.stream(body, limits.wall_s + _SILENCE_MARGIN_S) as request:
            async for item in request:
                if isinstance(item, ChatDelta):
                    new_part = self._spoke and item.text and not self._draft.spoken
                    self._draft.add_text(item.text)
                    # one answer to the client, though the model gave it in several messages
                    text = "\n\n" + item.text if new_part else item.text
                    await self._items.put(Delta(text, item.reasoning))
                elif isinstance(item, ChatCall):
                    self._draft.add_call(item.call)
                if self._draft.full:
                    self._state.add_usage(ChatEnd("length").usage, self._draft.bytes)
                    return None
            end: ChatEnd = await request.result()
        self._spoke = self._spoke or self._draft.spoken
        self._state.add_usage(end.usage, self._draft.bytes)
        return end

    async def _tell_dropped(self, dropped: int, cut: bool) -> None:
        if self._told_forgotten or not (dropped or cut):
            return
        self._told_forgotten = True
        what = [f"the oldest {dropped} messages of this session are left out"] if dropped else []
        what += ["a message too long for the window is shown to the model in part"] if cut else []
        await self._items.put(Notice(f"Context is full: {', and '.join(what)}."))

    # -- what is kept -----------------------------------------------------------------------------

    async def _keep(self, messages: list[Message]) -> None:
        """Append to the session; taken off the draft first, so that nothing is kept twice.

        Not cancelled with the turn: an append that core may have begun goes on to its end.
        """
        self._draft = Draft()
        self._history += messages
        if messages:
            self._keeping = asyncio.ensure_future(self._append(messages))
            await asyncio.shield(self._keeping)

    async def _append(self, messages: list[Message]) -> None:
        for batch in batches(messages):
            await self._edge.ask(SessionAppend(self._turn, tuple(batch)), _ASK_S)

    async def _keep_rest(self, why: str) -> None:
        """Keep what the draft holds when a turn ends early; the end does not wait for it long."""
        try:
            async with asyncio.timeout(_CLOSING_S):
                if self._keeping is not None:
                    await asyncio.shield(self._keeping)
                await self._keep(self._draft.cut_short(why))
        except (AskFailed, TimeoutError) as error:
            await self.log("partial_answer_lost", type(error).__name__)

    async def log(self, event: str, detail: str) -> None:
        """A warning in the operator's log, if core takes it at once."""
        try:
            await self._edge.ask(LogLine(self._turn, "warning", event, detail[:500]), _LOG_S)
        except AskFailed:
            pass  # there is no other place to say it
