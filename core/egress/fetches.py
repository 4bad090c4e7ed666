"""All running fetches: who may start one, and how each ends."""

import asyncio
from collections import Counter
from collections.abc import Callable
from time import monotonic
from typing import NamedTuple

import msgspec
import structlog

from core.acting import acting, parse_trace
from core.egress.fetch import Fetch
from core.egress.fetch_messages import (
    FetchBody,
    FetchCancel,
    FetchCredit,
    FetchDone,
    FetchFailed,
    FetchQuestion,
    FetchStart,
)
from core.egress.fetch_stream import FetchError, FetchStream
from core.egress.outside import Outside
from core.errors import LinkError
from core.metrics import FetchMetrics
from jail.wire.schema import Failure, HttpEnd

_RETRY_AFTER_S = 2
_CLOSE_S = 2.0
_log = structlog.get_logger(__name__)


class _Running(NamedTuple):
    stream: FetchStream
    task: "asyncio.Task[None]"


class Fetches:
    """Starts fetches, feeds them, ends them. On the loop's thread only.

    Args:
        outside: what each of them needs.
        send: takes a message for core, at once.
        watch: told of each.
    """

    def __init__(self, outside: Outside, send: Callable[[msgspec.Struct], None], watch: FetchMetrics) -> None:
        self._watch = watch
        self._outside = outside
        self._send = send
        self._running: dict[int, _Running] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._per_user: Counter[str] = Counter()
        self._open = True

    def use(self, outside: Outside) -> None:
        """Of what starts from now on."""
        self._outside = outside

    def take(self, message: FetchQuestion) -> None:
        """What core says. Raises LinkError for an id that runs already."""
        match message:
            case FetchStart():
                self._start(message)
            case FetchBody():
                running = self._running.get(message.fetch)
                if running is None:
                    self._send(FetchFailed(message.id, Failure("not_found", "this fetch is over")))
                else:
                    running.stream.feed(message)
            case FetchCredit(id, count):
                if (running := self._running.get(id)) is not None and count > 0:
                    running.stream.grant(count)
            case FetchCancel(id):
                if (running := self._running.pop(id, None)) is not None:
                    running.stream.close()
                    self._ending.add(running.task)
                    running.task.cancel()

    def set_open(self, is_open: bool) -> None:
        """Whether the link takes anything at present."""
        self._open = is_open
        for running in list(self._running.values()):
            running.stream.set_open(is_open)

    async def close(self) -> None:
        """Stop all, without a word to core."""
        tasks = [*(running.task for running in self._running.values()), *self._ending]
        self._running.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_S)

    def _start(self, ask: FetchStart) -> None:
        if ask.id in self._running:
            raise LinkError("a fetch's id is used twice")
        section = self._outside.section
        if len(self._running) + len(self._ending) >= section.max_fetches:
            self._refuse(ask, "too many requests run on this server")
            return
        if self._per_user[ask.user] >= section.max_fetches_per_user:
            self._refuse(ask, "too many of your requests run at once")
            return
        stream = FetchStream(ask, self._send)
        stream.set_open(self._open)
        self._per_user[ask.user] += 1
        task = asyncio.get_running_loop().create_task(self._run(stream))
        self._running[ask.id] = _Running(stream, task)
        task.add_done_callback(lambda done: self._gone(ask, done))

    def _refuse(self, ask: FetchStart, why: str) -> None:
        self._send(FetchFailed(ask.id, Failure("overloaded", why, _RETRY_AFTER_S)))

    def _gone(self, ask: FetchStart, task: "asyncio.Task[None]") -> None:
        self._ending.discard(task)
        self._per_user[ask.user] -= 1
        if not self._per_user[ask.user]:
            del self._per_user[ask.user]

    async def _run(self, stream: FetchStream) -> None:
        ask = stream.ask
        # whatever is logged or recorded for it says what it was for
        with acting(ask.request, parse_trace(ask.traceparent)):
            await self._answer(stream)

    async def _answer(self, stream: FetchStream) -> None:
        ask, began_s = stream.ask, monotonic()
        how = "cancelled"  # what ends it without a word was ended from outside
        self._watch.began()
        try:
            outcome = await self._outcome(stream)
            how = outcome.code if isinstance(outcome, Failure) else "ok"
        finally:
            self._watch.ended(how, monotonic() - began_s)
        self._running.pop(ask.id, None)  # from here on neither credit nor cancel has a meaning
        stream.close()
        log = _log.bind(user=ask.user, turn=ask.turn, took_s=round(monotonic() - began_s, 3))
        if isinstance(outcome, Failure):
            self._send(FetchFailed(ask.id, outcome))
            log.info("fetch_failed", code=outcome.code)
        else:
            self._send(FetchDone(ask.id, outcome))
            log.debug("fetch_ended", body_bytes=outcome.body_bytes)

    async def _outcome(self, stream: FetchStream) -> HttpEnd | Failure:
        try:
            return await Fetch(stream, self._outside).run()
        except FetchError as error:
            return error.failure
        except Exception as error:  # noqa: BLE001 - a bug in one fetch must not end the others
            # its words could be a credential's; where it happened is enough
            trace = error.__traceback__
            while trace is not None and trace.tb_next is not None:
                trace = trace.tb_next
            where = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else ""
            _log.error("fetch_crashed", error=type(error).__name__, where=where)
            return Failure("internal", "the egress process has a bug; its log says where")
