"""All running chats: who may start one, and how each ends."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from time import monotonic
from typing import NamedTuple

import msgspec
import structlog

from core.acting import acting, parse_trace
from core.egress.attached import Attached
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
from core.egress.secret import Striker
from core.egress.stream import Stream
from core.errors import LinkError
from jail.wire.schema import ChatEnd, Failure

MAX_STREAM_S = 86_400.0
"""No chat outlives the longest turn there may be (jail.wire.schema.Limits.wall_s)."""
_RETRY_AFTER_S = 2
_CLOSE_S = 2.0
_log = structlog.get_logger(__name__)


class StreamLimits(NamedTuple):
    """How many chats may run at once."""

    total: int
    per_user: int


class _Running(NamedTuple):
    stream: Stream
    task: asyncio.Task[None]


class Streams:
    """Starts chats, gives them credit, ends them. On the loop's thread only.

    Args:
        providers: by name.
        send: takes a message for core, at once.
        striker: knows every secret that must not come back.
        limits: more chats than these are refused as ``overloaded``.
    """

    def __init__(
        self,
        providers: Mapping[str, Provider],
        send: Callable[[msgspec.Struct], None],
        striker: Striker,
        limits: StreamLimits,
    ) -> None:
        self._providers = providers
        self._send = send
        self._striker = striker
        self._limits = limits
        self._attached = Attached()
        self._running: dict[int, _Running] = {}
        self._ending: set[asyncio.Task[None]] = set()  # cancelled, and not gone yet
        self._per_user: Counter[str] = Counter()
        self._open = True

    def __len__(self) -> int:
        return len(self._running) + len(self._ending)

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
        stream.set_open(self._open)
        self._per_user[ask.user] += 1
        task = asyncio.get_running_loop().create_task(self._run(stream))
        self._running[ask.id] = _Running(stream, task)
        task.add_done_callback(lambda done: self._gone(ask, done))

    def use(
        self, providers: Mapping[str, Provider], striker: Striker, limits: StreamLimits
    ) -> set["asyncio.Task[None]"]:
        """Start chats with these from now on; returns those that still run with what was there before."""
        self._providers, self._striker, self._limits = providers, striker, limits
        return {*(running.task for running in self._running.values()), *self._ending}

    def describe(self) -> list[dict[str, object]]:
        """Whose chats run, and with which provider, for a dump of states."""
        return [
            {"id": id_, "user": running.stream.ask.user, "provider": running.stream.ask.provider}
            for id_, running in self._running.items()
        ]

    def credit(self, message: ChatCredit) -> None:
        """More items may come; nothing happens where the chat has ended."""
        running = self._running.get(message.id)
        if running is not None and message.count > 0:
            running.stream.grant(message.count)

    def cancel(self, message: ChatCancel) -> None:
        """Stop a chat at once; nothing more is sent for it."""
        if message.id not in self._running:
            self._attached.drop(message.id)
        running = self._running.pop(message.id, None)
        if running is not None:
            self._ending.add(running.task)
            running.task.cancel()

    def set_open(self, is_open: bool) -> None:
        """Whether the link takes anything at present; until it does, deltas merge."""
        self._open = is_open
        for running in list(self._running.values()):
            running.stream.set_open(is_open)

    async def close(self) -> None:
        """Stop all chats, without a word to core."""
        tasks = [*(running.task for running in self._running.values()), *self._ending]
        self._running.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_S)

    def _refusal(self, ask: ChatStart) -> Failure | None:
        if ask.provider not in self._providers:
            return Failure(
                "not_found",
                f"no provider {ask.provider[:96]!r} is configured; have the operator add a section"
                f" [providers.{ask.provider[:96]}], or choose another in the agent's file",
            )
        if len(self) >= self._limits.total:
            return Failure("overloaded", "too many chats run on this server", _RETRY_AFTER_S)
        if self._per_user[ask.user] >= self._limits.per_user:
            return Failure("overloaded", "too many of your chats run at once", _RETRY_AFTER_S)
        return None

    def _gone(self, ask: ChatStart, task: asyncio.Task[None]) -> None:
        self._ending.discard(task)
        self._attached.drop(ask.id)
        running = self._running.get(ask.id)
        if running is not None and running.task is task:
            del self._running[ask.id]
        self._per_user[ask.user] -= 1
        if not self._per_user[ask.user]:
            del self._per_user[ask.user]

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
        self._running.pop(ask.id, None)  # from here on neither credit nor cancel has a meaning
        took_s = round(monotonic() - started_s, 3)
        log = _log.bind(user=ask.user, turn=ask.turn, provider=ask.provider, took_s=took_s)
        if isinstance(outcome, Failure):
            self._send(ChatFailed(ask.id, outcome))
            log.warning("chat_failed", code=outcome.code)
        else:
            self._send(ChatDone(ask.id, outcome))
            log.debug("chat_ended", finish=outcome.finish)

    async def _outcome(self, stream: Stream) -> ChatEnd | Failure:
        ask = stream.ask
        try:
            async with asyncio.timeout(MAX_STREAM_S):
                return await self._providers[ask.provider].chat(ask, stream)
        except ProviderError as error:
            return error.failure
        except TimeoutError:
            return Failure("timeout", f"the chat took longer than {MAX_STREAM_S:g} s")
        except Exception as error:  # noqa: BLE001 - a bug in one chat must not end the others
            # its words and values could be a key's or a message's; where it happened is enough
            _log.error("chat_crashed", error=type(error).__name__, where=_where(error))
            return Failure("internal", "the egress process has a bug; its log says where")


def _where(error: BaseException) -> list[str]:
    frames = []
    traceback = error.__traceback__
    while traceback is not None:
        frames.append(f"{traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}")
        traceback = traceback.tb_next
    return frames[-8:]
