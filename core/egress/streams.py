"""All running chats: who may start one, and how each ends."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic
from typing import NamedTuple

import msgspec
import structlog

from core.acting import acting, parse_trace
from core.egress.attached import Attached
from core.egress.fallbacks import WithFallbacks, behind
from core.egress.messages import (
    ChatCancel,
    ChatCredit,
    ChatDone,
    ChatFailed,
    ChatFile,
    ChatFileTaken,
    ChatStart,
)
from core.egress.providers import Provider, ProviderError
from core.egress.running import Running, crash_site
from core.egress.secret import Striker
from core.egress.stream import Stream
from core.errors import LinkError
from jail.wire.schema import ChatEnd, Failure

MAX_STREAM_S = 86_400.0
"""No chat outlives the longest turn there may be (jail.wire.schema.Limits.wall_s)."""
_RETRY_AFTER_S = 2
_log = structlog.get_logger(__name__)


class StreamLimits(NamedTuple):
    """How many chats may run at once."""

    total: int
    per_user: int


class Streams:
    """Starts chats, gives them credit, ends them. On the loop's thread only.

    Args:
        providers: by name; ``single`` the same without their fallbacks, for agents that have their own.
        send: takes a message for core, at once.
        striker: knows every secret that must not come back.
        limits: more chats than these are refused as ``overloaded``.
        fell_back: told the provider that an agent's own fallback answered for.
    """

    def __init__(
        self,
        providers: Mapping[str, Provider],
        send: Callable[[msgspec.Struct], None],
        striker: Striker,
        limits: StreamLimits,
        single: Mapping[str, Provider] | None = None,
        fell_back: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._fell_back = fell_back
        self._providers, self._single = providers, single or providers
        self._send = send
        self._striker = striker
        self._limits = limits
        self._attached = Attached()
        self._running: Running[Stream] = Running()

    def __len__(self) -> int:
        return len(self._running)

    def file(self, piece: ChatFile) -> None:
        """Hold a piece of a file for a chat that is about to start, or fail that chat."""
        refusal = self._attached.add(piece)
        self._send(ChatFileTaken(piece.id) if refusal is None else ChatFailed(piece.id, refusal))

    def start(self, ask: ChatStart) -> None:
        """Start a chat, or refuse it. Raises LinkError for an id that runs already."""
        if ask.id in self._running:
            raise LinkError("a chat's id is used twice")
        refusal = self._refusal(ask)
        if refusal is not None:
            self._attached.drop(ask.id)
            self._send(ChatFailed(ask.id, refusal))
            return
        ask = msgspec.structs.replace(ask, files=self._attached.files(ask.id))
        stream = Stream(ask, self._send, self._striker)
        task = self._running.begin(ask.id, ask.user, stream, self._run(stream))
        task.add_done_callback(lambda _: self._attached.drop(ask.id))

    def use(
        self,
        providers: Mapping[str, Provider],
        striker: Striker,
        limits: StreamLimits,
        single: Mapping[str, Provider] | None = None,
    ) -> set["asyncio.Task[None]"]:
        """Start chats with these from now on; returns those that still run with what was there before."""
        self._providers, self._striker, self._limits = providers, striker, limits
        self._single = single or providers
        return self._running.tasks()

    def describe(self) -> list[dict[str, object]]:
        """Whose chats run, and with which provider, for a dump of states."""
        return [
            {"id": id_, "user": stream.ask.user, "provider": stream.ask.provider}
            for id_, stream in self._running.streams()
        ]

    def credit(self, message: ChatCredit) -> None:
        """More items may come; nothing happens where the chat has ended."""
        self._running.credit(message.id, message.count)

    def cancel(self, message: ChatCancel) -> None:
        """Stop a chat at once; nothing more is sent for it."""
        stream = self._running.cancel(message.id)
        if stream is None:
            self._attached.drop(message.id)
        else:
            stream.close()

    def set_open(self, is_open: bool) -> None:
        """Whether the link takes anything at present; until it does, deltas merge."""
        self._running.set_open(is_open)

    async def close(self) -> None:
        """Stop all chats, without a word to core."""
        await self._running.close()

    def _refusal(self, ask: ChatStart) -> Failure | None:
        if ask.provider not in self._providers:
            return Failure(
                "not_found",
                f"no provider {ask.provider[:96]!r} is configured; have the operator add a section"
                f" [providers.{ask.provider[:96]}], or choose another in the agent's file",
            )
        if len(self._running) >= self._limits.total:
            return Failure("overloaded", "too many chats run on this server", _RETRY_AFTER_S)
        if self._running.of(ask.user) >= self._limits.per_user:
            return Failure("overloaded", "too many of your chats run at once", _RETRY_AFTER_S)
        return None

    async def _run(self, stream: Stream) -> None:
        ask = stream.ask
        # whatever is logged or recorded for this chat, retries and fallbacks too, says what it was for
        with acting(ask.request, parse_trace(ask.traceparent)):
            await self._answer(stream)

    async def _answer(self, stream: Stream) -> None:
        ask, started_s = stream.ask, monotonic()
        outcome = await self._outcome(stream)
        try:
            await stream.drain()  # what came before a failure is core's too
        except ProviderError as error:
            outcome = error.failure
        self._running.over(ask.id)
        took_s = round(monotonic() - started_s, 3)
        log = _log.bind(user=ask.user, turn=ask.turn, provider=ask.provider, took_s=took_s)
        if isinstance(outcome, Failure):
            self._send(ChatFailed(ask.id, outcome))
            log.warning("chat_failed", code=outcome.code)
        else:
            self._send(ChatDone(ask.id, outcome))
            log.debug("chat_ended", finish=outcome.finish)

    def _provider(self, ask: ChatStart) -> Provider:
        if not ask.fallbacks:
            return self._providers[ask.provider]
        name, single = ask.provider, self._single
        others = behind(ask.fallbacks, single)
        return WithFallbacks(name, single[name], others, partial(self._fell_back, name))

    async def _outcome(self, stream: Stream) -> ChatEnd | Failure:
        ask = stream.ask
        try:
            async with asyncio.timeout(MAX_STREAM_S):
                return await self._provider(ask).chat(ask, stream)
        except ProviderError as error:
            return error.failure
        except TimeoutError:
            return Failure("timeout", f"the chat took longer than {MAX_STREAM_S:g} s")
        except Exception as error:  # noqa: BLE001 - a bug in one chat must not end the others
            # its words and values could be a key's or a message's; where it happened is enough
            _log.error("chat_crashed", error=type(error).__name__, where=crash_site(error))
            return Failure("internal", "the egress process has a bug; its log says where")
