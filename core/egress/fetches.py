"""All running fetches: who may start one, and how each ends."""

from collections.abc import Callable
from time import monotonic

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
from core.egress.running import Running, crash_site
from core.errors import LinkError
from core.metrics import FetchMetrics
from jail.wire.schema import Failure, HttpEnd

_RETRY_AFTER_S = 2
_log = structlog.get_logger(__name__)


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
        self._running: Running[FetchStream] = Running()

    def use(self, outside: Outside) -> None:
        """Of what starts from now on."""
        self._outside = outside

    def take(self, message: FetchQuestion) -> None:
        """What core says. Raises LinkError for an id that runs already."""
        match message:
            case FetchStart():
                self._start(message)
            case FetchBody():
                stream = self._running.get(message.fetch)
                if stream is None:
                    self._send(FetchFailed(message.id, Failure("not_found", "this fetch is over")))
                else:
                    stream.feed(message)
            case FetchCredit(id, count):
                self._running.credit(id, count)
            case FetchCancel(id):
                if (stream := self._running.cancel(id)) is not None:
                    stream.close()

    def describe(self) -> list[dict[str, object]]:
        """Whose requests run, for which turn, for a dump of states; an address may hold what is a user's."""
        return [
            {"id": id_, "user": stream.ask.user, "turn": stream.ask.turn, "method": stream.ask.method}
            for id_, stream in self._running.streams()
        ]

    def set_open(self, is_open: bool) -> None:
        """Whether the link takes anything at present."""
        self._running.set_open(is_open)

    async def close(self) -> None:
        """Stop all, without a word to core."""
        await self._running.close()

    def _start(self, ask: FetchStart) -> None:
        if ask.id in self._running:
            raise LinkError("a fetch's id is used twice")
        section = self._outside.section
        if len(self._running) >= section.max_fetches:
            self._refuse(ask, "too many requests run on this server")
            return
        if self._running.of(ask.user) >= section.max_fetches_per_user:
            self._refuse(ask, "too many of your requests run at once")
            return
        stream = FetchStream(ask, self._send)
        self._running.begin(ask.id, ask.user, stream, self._run(stream))

    def _refuse(self, ask: FetchStart, why: str) -> None:
        self._send(FetchFailed(ask.id, Failure("overloaded", why, _RETRY_AFTER_S)))

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
        self._running.over(ask.id)
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
            _log.error("fetch_crashed", error=type(error).__name__, where=crash_site(error)[-1])
            return Failure("internal", "the egress process has a bug; its log says where")
