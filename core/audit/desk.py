"""The audit log's thread: writes what comes, waits for the disk once a second or for an act.

Acts (what must not happen unrecorded) are answered when they are on disk, or refused. Notes (what
happened anyway) are lost where the disk is full: how many is logged at once, and recorded as
``log_gap`` as soon as a line can be written again.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

import msgspec
import structlog

from core.acting import current_request
from core.audit.files import AuditLog
from core.audit.lines import By
from core.audit.records import AuditUnavailable, Record, bounded
from core.audit.throttle import Throttle
from core.metrics import EgressMetrics

_MAX_BATCH = 256
_MAX_WAITING = 10_000
_FLUSH_S = 1.0
_ACT_S = 10.0
_STOP_S = 10.0
_COMPLAIN_EVERY_S = 60.0
_FULL = "the audit log cannot be written (is the disk full?), so nothing is done that it has to record"
_FLOOD = "you do this more often than is recorded in a minute; wait a minute"
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Job:
    by: By
    record: Record
    done: Callable[[str], None] | None = None  # an act's; called on the thread, with why not


def _for_request(record: Record) -> Record:
    request = current_request()
    return record if record.request or not request else msgspec.structs.replace(record, request=request)


class AuditDesk:
    """Implements core.audit.records.Auditor for what egress itself has to say. Made on the event loop.

    Args:
        log: open; this takes it over and closes it.
        lines_per_minute: of one user and kind.
        ended: called on the thread when it ends, by a bug or because it was stopped.
        metrics: told of every record, and how long writing takes.
    """

    def __init__(
        self,
        log: AuditLog,
        lines_per_minute: int,
        ended: Callable[[], None],
        metrics: EgressMetrics | None = None,
    ) -> None:
        self._metrics = metrics
        self._log = log
        if metrics is not None and log.damage:
            metrics.audited("log_damaged")  # recorded by the log itself, before anybody could count
        self._throttle = Throttle(lines_per_minute)
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lost = 0
        self._lost_lock = threading.Lock()
        self._complain_at_s = 0.0
        self._flush_at_s: float | None = None
        # a disk that hangs must not keep the process from its end
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    def note(self, record: Record) -> None:
        """See core.audit.records.Auditor. Says for which request it acts, where it acts for one."""
        self.note_by("egress", _for_request(record))

    async def act(self, record: Record) -> None:
        """See core.audit.records.Auditor."""
        await self.act_by("egress", _for_request(record))

    def note_by(self, by: By, record: Record) -> None:
        """The same, saying who reported it."""
        self._count(record)
        if self._queue.qsize() >= _MAX_WAITING:
            self._lose(1)
        else:
            self._queue.put(_Job(by, bounded(record)))

    async def act_by(self, by: By, record: Record) -> None:
        """The same, saying who reported it."""
        self._count(record)
        if self._queue.qsize() >= _MAX_WAITING:
            raise AuditUnavailable("the audit log is overloaded; try again in a second")
        written: asyncio.Future[str] = self._loop.create_future()

        def settle(refusal: str) -> None:
            if not written.done():
                written.set_result(refusal)

        def done(refusal: str) -> None:
            self._loop.call_soon_threadsafe(settle, refusal)

        self._queue.put(_Job(by, bounded(record), done))
        try:
            async with asyncio.timeout(_ACT_S):
                refusal = await written
        except TimeoutError:
            refusal = _FULL
        if refusal:
            raise AuditUnavailable(refusal)

    def _count(self, record: Record) -> None:
        if self._metrics is not None:
            self._metrics.audited(record.kind)

    async def stop(self) -> None:
        """Write what waits, then end."""
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join, _STOP_S)
        if self._thread.is_alive():
            _log.error("audit_stop_timed_out", limit_s=_STOP_S)

    # -- on the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            more = True
            while more:
                jobs, more = self._take()
                self._do(jobs, last=not more)
        finally:
            self._log.close()
            self._ended()

    def _take(self) -> tuple[list[_Job], bool]:
        """What waits, or nothing after a second; and whether more is to come."""
        jobs: list[_Job] = []
        wait_s = _FLUSH_S
        while len(jobs) < _MAX_BATCH:
            try:
                job = self._queue.get(timeout=wait_s) if not jobs else self._queue.get_nowait()
            except queue.Empty:
                break
            if job is None:
                return jobs, False
            jobs.append(job)
        return jobs, True

    def _do(self, jobs: list[_Job], last: bool) -> None:
        now_s = monotonic()
        written: list[tuple[By, Record]] = []
        acts: list[Callable[[str], None]] = []
        for job in jobs:
            if job.done is None:
                if self._throttle.admits(job.by, job.record, now_s):
                    written.append((job.by, job.record))
            elif job.record.who.startswith("user:") and not self._throttle.admits(job.by, job.record, now_s):
                job.done(_FLOOD)  # whoever fills the log so fast is refused, not gathered
            else:
                acts.append(job.done)
                written.append((job.by, job.record))
        written += self._throttle.due(now_s, everything=last)
        ok = self._write(written, bool(acts) or last, now_s, len(written) - len(acts))
        for done in acts:
            done("" if ok else _FULL)

    def _write(self, records: list[tuple[By, Record]], sync: bool, now_s: float, notes: int) -> bool:
        """Whether it worked; ``notes`` of the records are lost where it did not."""
        with self._lost_lock:
            lost = self._lost
        if lost:
            records = [("egress", Record("log_gap", "noted", count=lost)), *records]
        try:
            if records:
                began_s = monotonic()
                self._log.append(records)
                if self._metrics is not None:
                    self._metrics.stores.committed("audit", monotonic() - began_s, len(records))
                    if lost:
                        self._metrics.audited("log_gap")
                notes = 0
                self._lose(-lost)
                if self._flush_at_s is None:
                    self._flush_at_s = now_s + _FLUSH_S
            if self._flush_at_s is not None and (sync or now_s >= self._flush_at_s):
                self._log.sync()
                self._flush_at_s = None
        except OSError as error:
            if self._metrics is not None:
                self._metrics.stores.failed("audit")
            self._lose(notes)
            if now_s >= self._complain_at_s:
                self._complain_at_s = now_s + _COMPLAIN_EVERY_S
                _log.error("audit_write_failed", error=error.strerror, lost=self._lost)
            return False
        return True

    def _lose(self, count: int) -> None:
        if self._metrics is not None and count > 0:
            self._metrics.audit_lost(count)
        with self._lost_lock:
            self._lost += count
