"""The storage threads: they alone touch the databases, and commit in groups.

A user belongs to one thread, so what is asked for one user happens in the order asked. A thread
takes what waits for one user, as much of it as their share allows (actors/fairness.py), does it in one
transaction, and only after the commit says so; while it waits for the disk the next group gathers.
Callers never wait: they are called back.

Durability: a group commits with synchronous=FULL (the write-ahead log is flushed), because an
acknowledged step or message must outlive a power cut. A group of nothing but ``lazy`` work, the
event log, commits with NORMAL: it outlives any end of the process, and a power cut may take the
last of it but never damages the file (https://sqlite.org/wal.html).
"""

import contextlib
import sqlite3
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import structlog

from actors.fairness import Shares
from core.acting import current_request
from core.errors import CoreError
from core.kept_copy import forget_copies
from core.metrics import StoreMetrics
from core.purge_clock import FiledPurgeClock
from core.sessions.database import Database
from core.sessions.errors import StorageError
from core.sessions.openturns import GoesOn, OpenTurns
from core.sessions.retention import Retention, shard_of
from core.sessions.store import UserStore
from core.vault.handle import UserHandle

_T = TypeVar("_T")

_SHARE = 128
"""What one transaction may cost: more would keep the other users of this thread waiting."""
_COST_BYTES = 16 << 10
"""A job costs 1, and 1 more for each of these."""
_MAX_USER_JOBS = 512
_MAX_USER_BYTES = 32 << 20
"""What may wait for one user; more is refused as overloaded."""
_MAX_OWED = 256
_OWED_AGAIN_S = 1.0
"""How many failed jobs a thread tries again, and how often, where nothing else is asked for their user."""
_MAX_OPEN = 32
"""Databases a thread keeps open, three descriptors each."""
_STOP_TIMEOUT_S = 10.0
_OUR_BUG = "storing failed by a bug of ours; it was logged"

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Job:
    handle: UserHandle
    work: Callable[[UserStore], Any]
    done: Callable[[Any], None]
    failed: Callable[[CoreError], None]
    size_bytes: int
    lazy: bool
    insists: bool
    request: str


@dataclass(frozen=True, slots=True)
class _Removal:
    """Closes a user's database and deletes its files."""

    done: Callable[[Any], None]
    failed: Callable[[CoreError], None]
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Resumer:
    """Starts turns anew that an earlier process left; called on storage threads.

    ``claim`` within the transaction that finds them: their sessions are theirs. ``start`` after its commit,
    or ``release`` where that came to nothing: the next transaction finds, and judges, them anew.
    """

    claim: Callable[[UserHandle, GoesOn], None]
    release: Callable[[UserHandle, GoesOn], None]
    start: Callable[[UserHandle, GoesOn], None]


class _Found(NamedTuple):
    """A claimed turn: what to do after the commit, and what if there was none."""

    start: Callable[[], None]
    release: Callable[[], None]


@dataclass(slots=True)
class _Waiting:
    jobs: deque[_Job | _Removal]
    size_bytes: int = 0


class Storage:
    """Runs work on users' databases below ``directory`` (made with mode 0700 if missing).

    Args:
        directory: where ``<user>.db`` lie.
        threads: how many threads share the users.
        keep_days: sessions that were not used for so long are deleted when their database is
            opened, and daily, whether their user comes or not; 0: kept for ever.
        stores: told how long each group's commit took.
        timed_out: told "store" where somebody did not wait for an answer.
    """

    def __init__(
        self,
        directory: Path,
        threads: int,
        keep_days: int = 0,
        stores: StoreMetrics | None = None,
        timed_out: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.timed_out = timed_out
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        clock = FiledPurgeClock(directory / "purged-until")
        self._threads = [
            _StorageThread(directory, number, Retention(directory, number, threads, keep_days, clock), stores)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def resume_by(self, resumer: Resumer) -> None:
        """Have turns go on that may, at the first opening of their user's database; before any work."""
        for thread in self._threads:
            thread.resumer = resumer

    def submit(
        self,
        handle: UserHandle,
        work: Callable[[UserStore], _T],
        done: Callable[[_T], None],
        failed: Callable[[CoreError], None],
        *,
        size_bytes: int = 0,
        lazy: bool = False,
        insists: bool = False,
    ) -> None:
        """Have ``work`` done in a transaction; never blocks.

        ``done`` is called on a storage thread after the commit, or ``failed`` with a StorageError,
        SealError or what of CoreError the work raised, in which case nothing of it was kept.
        When too much waits for this user, ``failed`` is called at once, on this thread.
        ``size_bytes`` is about what the job holds in memory; ``lazy``: see the module.
        Work that ``insists`` is never too much, and what the disk refuses of it is tried again, ahead of
        whatever else is asked for its user; ``done`` may then follow upon ``failed``.
        """
        job = _Job(handle, work, done, failed, size_bytes, lazy, insists, current_request())
        self._thread_of(handle.user).put(handle.user, job)

    def remove(self, user: str, done: Callable[[None], None], failed: Callable[[CoreError], None]) -> None:
        """Delete a user's database, after all that waits for it; answers as :meth:`submit`."""
        self._thread_of(user).put(user, _Removal(done, failed))

    def stop(self) -> None:
        """Do what waits, close every database and end the threads; refuses what comes later."""
        for thread in self._threads:
            thread.finish()
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                _log.error("storage_stop_timed_out", thread=thread.name)

    def _thread_of(self, user: str) -> "_StorageThread":
        return self._threads[shard_of(user, len(self._threads))]


class _StorageThread(threading.Thread):
    def __init__(
        self, directory: Path, number: int, retention: Retention, stores: StoreMetrics | None
    ) -> None:
        super().__init__(name=f"storage-{number}", daemon=True)
        self._stores = stores
        self._directory = directory
        self._retention = retention
        self._woken = threading.Condition()
        self._waiting: dict[str, _Waiting] = {}
        self._shares: Shares[str] = Shares(_SHARE)
        self._finishing = False
        self._open: OrderedDict[str, Database] = OrderedDict()
        self._recovered: set[str] = set()
        self._owed: dict[str, list[_Job]] = {}
        self._owed_at_s = 0.0
        self.resumer: Resumer | None = None

    # -- any thread -------------------------------------------------------------------------------

    def put(self, user: str, job: _Job | _Removal) -> None:
        with self._woken:
            refusal = self._refusal(user, job)
            if refusal is None:
                waiting = self._waiting.setdefault(user, _Waiting(deque()))
                waiting.jobs.append(job)
                waiting.size_bytes += job.size_bytes
                self._shares.wake(user)
                self._woken.notify()
        if refusal is not None:
            job.failed(refusal)

    def _refusal(self, user: str, job: _Job | _Removal) -> StorageError | None:
        if self._finishing:
            return StorageError("unavailable", "the server is stopping")
        waiting = None if isinstance(job, _Job) and job.insists else self._waiting.get(user)
        if waiting is not None and (
            len(waiting.jobs) >= _MAX_USER_JOBS or waiting.size_bytes + job.size_bytes > _MAX_USER_BYTES
        ):
            return StorageError("overloaded", "too much waits to be stored: try again in a moment")
        return None

    def finish(self) -> None:
        with self._woken:
            self._finishing = True
            self._woken.notify()

    # -- this thread ------------------------------------------------------------------------------

    def run(self) -> None:
        while (group := self._take()) is not None:
            user, jobs = group
            if isinstance(jobs, _Removal):
                self._remove(user, jobs)
            elif jobs:
                self._carry_out(user, [*self._owed.pop(user, ()), *jobs])
            if self._owed and self._due_in_s(self._owed_at_s) <= 0:
                self._pay()  # however much others ask for meanwhile
            if (due := self._retention.next_user()) is not None:
                self._expire(due)
        self._pay()
        while self._open:
            self._close(next(iter(self._open)))

    def _take(self) -> tuple[str, list[_Job] | _Removal] | None:
        """The next user's group in turn; waits for one, None when there will be no more.

        An empty group says that it is time for what is owed, or for what the rule of retention wants.
        """
        with self._woken:
            while (turn := self._shares.next()) is None:
                if self._finishing:
                    return None
                wait_s = self._retention.due_in_s()
                if self._owed:
                    owed_s = self._due_in_s(self._owed_at_s)
                    wait_s = owed_s if wait_s is None else min(wait_s, owed_s)
                if wait_s is not None and wait_s <= 0:
                    return "", []
                self._woken.wait(wait_s)
            user, allowance = turn
            waiting, cost = self._waiting[user], 0
            group: list[_Job] = []
            removal: _Removal | None = None
            while waiting.jobs and cost < allowance:
                job = waiting.jobs[0]
                if isinstance(job, _Removal):
                    removal = job if not group else None
                    if removal:
                        waiting.jobs.popleft()
                    break
                waiting.jobs.popleft()
                waiting.size_bytes -= job.size_bytes
                cost += 1 + job.size_bytes // _COST_BYTES
                group.append(job)
            self._shares.served(user, cost, more=bool(waiting.jobs))
            if not waiting.jobs:
                del self._waiting[user]
            return user, removal or group

    def _carry_out(self, user: str, jobs: list[_Job]) -> None:
        answers: list[Callable[[], None]] = []
        found: list[_Found] = []
        began_s = time.monotonic()
        try:
            database = self._database(user)
            execute = database.connection.execute
            level = "NORMAL" if all(job.lazy for job in jobs) else "FULL"
            execute(f"PRAGMA synchronous={level}")
            execute("BEGIN IMMEDIATE")
            if user not in self._recovered:
                self._retention.apply(user, database.connection)
                found = self._recover(database.bind(jobs[0].handle))
            answers = [*(turn.start for turn in found), *(self._one(database, job) for job in jobs)]
            execute("COMMIT")
            self._recovered.add(user)
            if self._stores is not None:
                self._stores.committed("sessions", time.monotonic() - began_s, len(jobs))
        except Exception as error:  # noqa: BLE001 - one user's database must not end the thread of many
            self._close(user)  # rolls back; the next group begins with a fresh look at the file
            if self._stores is not None:
                self._stores.failed("sessions")
            reason = _reason(error, user, len(jobs))
            answers = [turn.release for turn in found]
            answers += [partial(self._fail, job, reason) for job in jobs]
        for answer in answers:
            _call(answer)

    def _pay(self) -> None:
        """Try again what failed."""
        owed, self._owed = self._owed, {}
        for user, jobs in owed.items():
            self._carry_out(user, jobs)

    def _fail(self, job: _Job, reason: CoreError) -> None:
        """Tell it; work that insists is owed from now on, where the disk is what failed it."""
        if job.insists and isinstance(reason, StorageError):
            if sum(map(len, self._owed.values())) < _MAX_OWED:
                # it is told once that it failed
                self._owed.setdefault(job.handle.user, []).append(replace(job, failed=_say_nothing))
                self._owed_at_s = time.monotonic() + _OWED_AGAIN_S
            else:
                _log.error("storage_gave_up", user=job.handle.user, request_id=job.request)
        job.failed(reason)

    @staticmethod
    def _due_in_s(at_s: float) -> float:
        return at_s - time.monotonic()

    def _one(self, database: Database, job: _Job) -> Callable[[], None]:
        """Do one job inside the group's transaction; a failing one is undone alone."""
        execute = database.connection.execute
        execute("SAVEPOINT job")
        reason: CoreError
        try:
            result = job.work(database.bind(job.handle))
            execute("RELEASE job")
            return _bind(job.done, result)
        except CoreError as error:
            reason = error
        except sqlite3.Error as error:
            if not database.connection.in_transaction:
                raise  # SQLite undid the whole group (disk full, say): no job of it was kept
            _log.error("storage_job_failed", user=job.handle.user, request_id=job.request, error=str(error))
            reason = _storage_error(error)
        except Exception:  # noqa: BLE001 - a bug in one job must not fail its neighbours
            _log.exception("storage_job_crashed", user=job.handle.user, request_id=job.request)
            reason = StorageError("unavailable", _OUR_BUG)
        execute("ROLLBACK TO job")
        execute("RELEASE job")
        return partial(self._fail, job, reason)

    def _database(self, user: str) -> Database:
        database = self._open.get(user)
        if database is None:
            while len(self._open) >= _MAX_OPEN:
                self._close(next(iter(self._open)))
            database = self._open[user] = Database(self._directory / f"{user}.db")
        self._open.move_to_end(user)
        return database

    def _recover(self, store: UserStore) -> list[_Found]:
        """Once in this process's life: no turn of an earlier one is running any more."""
        resumer, handle = self.resumer, store.handle
        going, closed = OpenTurns(store).recover(time.time(), resumer is not None)
        if going or closed:
            _log.warning("turns_interrupted", user=handle.user, turns=closed + len(going), go_on=len(going))
        if resumer is None:
            return []
        for turn in going:
            resumer.claim(handle, turn)
        return [
            _Found(partial(resumer.start, handle, turn), partial(resumer.release, handle, turn))
            for turn in going
        ]

    def _expire(self, user: str) -> None:
        """Apply the rule to a user's database, if it is still there."""
        if not (self._directory / f"{user}.db").exists():
            return
        try:
            connection = self._database(user).connection
            connection.execute("BEGIN IMMEDIATE")
            self._retention.apply(user, connection)
            connection.execute("COMMIT")
        except (sqlite3.Error, CoreError) as error:
            self._close(user)
            _log.error("retention_failed", user=user, error=str(error))

    def _close(self, user: str) -> None:
        database = self._open.pop(user, None)
        if database is not None:
            try:
                database.close()
            except sqlite3.Error as error:
                _log.error("storage_close_failed", user=user, error=str(error))

    def _remove(self, user: str, removal: _Removal) -> None:
        self._close(user)
        self._recovered.discard(user)
        self._owed.pop(user, None)
        try:
            forget_copies(self._directory / f"{user}.db")
            for suffix in ("-wal", "-shm", ""):
                with contextlib.suppress(FileNotFoundError):
                    (self._directory / f"{user}.db{suffix}").unlink()
        except OSError as error:
            reason = StorageError("unavailable", f"{user}'s database is not deleted: {error.strerror}")
            _call(_bind(removal.failed, reason))
            return
        _call(_bind(removal.done, None))


def _say_nothing(_reason: CoreError) -> None:
    """It has been said."""


def _bind(function: Callable[[Any], None], value: Any) -> Callable[[], None]:
    return lambda: function(value)


def _call(answer: Callable[[], None]) -> None:
    try:
        answer()
    except Exception:  # noqa: BLE001 - whoever asked must not end the thread that serves all
        _log.exception("storage_callback_crashed")


def _reason(error: Exception, user: str, jobs: int) -> CoreError:
    """Why a group came to nothing, in words for whoever asked; what they are not told is logged."""
    if isinstance(error, CoreError):
        return error
    if isinstance(error, sqlite3.Error):
        _log.error("storage_failed", user=user, error=str(error), jobs=jobs)
        return _storage_error(error)
    _log.error("storage_crashed", user=user, jobs=jobs, exc_info=error)
    return StorageError("unavailable", _OUR_BUG)


def _storage_error(error: sqlite3.Error) -> StorageError:
    full = getattr(error, "sqlite_errorname", "").startswith("SQLITE_FULL")
    what = "the disk is full: tell the operator" if full else "the database failed; it was logged"
    return StorageError("unavailable", f"not stored, {what}")
