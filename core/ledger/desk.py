"""The ledger's thread: what waits is done in one transaction, and one wait for the disk serves all.

Whoever reserves waits for that commit. It waits for the disk only where a hard limit applies to one of
those who reserve; what is merely settled need not: lost in a power failure it is still held, and
settled at the next start as used in full.
"""

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic, time
from typing import Any, Protocol, TypeVar

import structlog

from core.audit.records import Auditor, Record
from core.ledger.book import Book
from core.ledger.metering import Amount, Claim, Grant, LedgerUnavailable, LimitReached
from core.ledger.store import LedgerStore
from core.purge_clock import PurgeClock

_MAX_BATCH = 256
_MAX_WAITING = 4_096
_WAIT_S = 15.0
_STOP_S = 10.0
_PURGE_EVERY_S = 3_600.0
_log = structlog.get_logger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Job:
    """``act`` is done on the thread within a transaction; ``done`` is called there with what came of it.

    ``keep``: where the disk fails it is tried again with the next ones.
    """

    act: Callable[[Book, float], Any]
    done: Callable[[Any], None]
    claim: Claim | None = None
    keep: bool = False


def _silently(_: Any) -> None:
    """Nobody waits."""


class Stores(Protocol):
    """Is told of writing to disk: core.metrics.StoreMetrics."""

    def committed(self, store: str, seconds: float, jobs: int) -> None:
        """A group was written."""
        ...

    def failed(self, store: str) -> None:
        """A group came to nothing."""
        ...


class LedgerDesk:
    """Implements core.ledger.metering.Meter. Made and called on a running event loop.

    Args:
        store, book: open; this takes them over and closes the store.
        auditor: is told of limits reached.
        ended: called on the thread when it ends, by a bug or because it was stopped.
        wall_s: the time as Unix seconds.
        stores: told how long writing took.
    """

    def __init__(
        self,
        store: LedgerStore,
        book: Book,
        auditor: Auditor,
        ended: Callable[[], None],
        wall_s: Callable[[], float] = time,
        stores: Stores | None = None,
    ) -> None:
        self._stores = stores
        self._store = store
        self._book = book
        self._auditor = auditor
        self._ended = ended
        self._wall_s = wall_s
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._waiting = 0
        self._stopping = False
        self._kept: list[_Job] = []
        self._purge_at_s = 0.0
        self._purge_clock = PurgeClock(store.purged_until_s(), wall_s)
        # a disk that hangs must not keep the process from its end
        self._thread = threading.Thread(target=self._run, name="ledger", daemon=True)
        self._thread.start()

    async def reserve(self, claim: Claim) -> Grant:
        """See core.ledger.metering.Meter."""
        grant = await self._ask(lambda book, now_s: book.reserve(claim, now_s), claim)
        assert isinstance(grant, Grant)
        for met in grant.met:
            _log.warning("soft_limit_reached", user=claim.user, dimension=met.dimension)
            self._auditor.note(Record("limit_reached", "soft", user=claim.user, on=met.dimension))
        return grant

    def settle(self, grant_id: int, used: Amount, estimated: bool = False) -> None:
        """See core.ledger.metering.Meter."""
        self._put(_Job(lambda book, _: book.settle(grant_id, used, estimated), _silently, keep=True))

    async def call(self, act: Callable[[Book, float], T]) -> T:
        """Do something with the book, in a transaction. Raises LedgerUnavailable."""
        result: T = await self._ask(act, None)
        return result

    async def stop(self) -> None:
        """Do what waits, then end; what cannot be written by then stays held and is settled at the start."""
        self._stopping = True
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join, _STOP_S)
        if self._thread.is_alive():
            _log.error("ledger_stop_timed_out", limit_s=_STOP_S)

    async def _ask(self, act: Callable[[Book, float], Any], claim: Claim | None) -> Any:
        if self._stopping or self._waiting >= _MAX_WAITING:
            raise LedgerUnavailable("the ledger is ending or overloaded; try again in a second")
        answer: asyncio.Future[Any] = self._loop.create_future()

        def settle_here(result: Any) -> None:
            self._waiting -= 1
            if not answer.done():
                answer.set_result(result)
            elif isinstance(result, Grant):
                self.settle(result.id, Amount())  # nobody waits for it any more

        def done(result: Any) -> None:
            self._loop.call_soon_threadsafe(settle_here, result)

        self._waiting += 1
        self._put(_Job(act, done, claim))
        try:
            async with asyncio.timeout(_WAIT_S):
                result = await answer
        except TimeoutError:
            raise LedgerUnavailable("the ledger's disk does not answer; try again") from None
        if isinstance(result, LimitReached):
            self._tell_limit(claim, result)
        if isinstance(result, LimitReached | LedgerUnavailable):
            raise result
        return result

    def _tell_limit(self, claim: Claim | None, reached: LimitReached) -> None:
        user = claim.user if claim is not None else ""
        _log.info("hard_limit_refused", user=user, dimension=reached.dimension)
        if reached.first:
            self._auditor.note(Record("limit_reached", "hard", user=user, on=reached.dimension))

    def _put(self, job: _Job) -> None:
        self._queue.put(job)

    # -- on the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while (jobs := self._take()) is not None:
                self._do(jobs)
            self._do([])
            if self._kept:
                _log.error("usage_left_unsettled", requests=len(self._kept))
        finally:
            self._store.close()
            self._ended()

    def _take(self) -> list[_Job] | None:
        first = self._queue.get()
        if first is None:
            return None
        jobs = [first]
        while len(jobs) < _MAX_BATCH:
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                break
            if job is None:
                self._queue.put(None)  # for the next round
                break
            jobs.append(job)
        return jobs

    def _do(self, jobs: list[_Job]) -> None:
        jobs, self._kept = self._kept + jobs, []
        now_s, began_s = self._wall_s(), monotonic()
        results: list[Any] = []
        try:
            self._store.sync(
                any(
                    job.claim is None or self._book.is_limited(job.claim.user) for job in jobs if not job.keep
                )
            )
            with self._store.transaction():
                for job in jobs:
                    results.append(self._attempt(job, now_s))
                self._purge()
        except sqlite3.Error as error:
            _log.error("ledger_disk_failed", error=type(error).__name__, detail=str(error))
            if self._stores is not None:
                self._stores.failed("ledger")
            self._kept = [job for job in jobs if job.keep]
            self._reload()
            failed = LedgerUnavailable(
                "the ledger's disk failed; is it full? The server's log has the reason"
            )
            for job in jobs:
                if not job.keep:
                    job.done(failed)
            return
        if self._stores is not None and jobs:
            self._stores.committed("ledger", monotonic() - began_s, len(jobs))
        for job, result in zip(jobs, results, strict=True):
            job.done(result)

    def _has_to_sync(self, job: _Job) -> bool:
        if job.claim is None:
            return not job.keep
        return self._book.is_limited(job.claim.user)

    def _attempt(self, job: _Job, now_s: float) -> Any:
        try:
            return job.act(self._book, now_s)
        except LimitReached as reached:
            return reached

    def _purge(self) -> None:
        if monotonic() >= self._purge_at_s:
            self._purge_at_s = monotonic() + _PURGE_EVERY_S
            until_s = self._purge_clock.now_s()
            self._book.purge(until_s)
            self._store.note_purged(int(until_s))

    def _reload(self) -> None:
        """What the book remembers may be of a transaction that came to nothing."""
        try:
            self._book.reload()
        except sqlite3.Error as error:
            _log.error("ledger_disk_failed", error=type(error).__name__, detail=str(error))
