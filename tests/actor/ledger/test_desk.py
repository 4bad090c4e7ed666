"""The ledger's thread: many at once, a disk that fails, an end."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from core.ledger.book import Book
from core.ledger.desk import LedgerDesk
from core.ledger.limits import Limits, Sums
from core.ledger.metering import Amount, Grant, LedgerUnavailable, LimitReached
from core.ledger.store import LedgerStore
from tests.fakes.auditor import Notes
from tests.fakes.ledger import NOON_S, chat, terms


def with_desk(
    directory: Path, limits: Limits, test: Callable[[LedgerDesk, LedgerStore, Notes], Awaitable[None]]
) -> None:
    async def run() -> None:
        directory.chmod(0o700)
        store = LedgerStore(directory / "ledger.db")
        notes = Notes()
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        book = Book(store, terms(soft=Limits(requests=2), hard=limits))
        desk = LedgerDesk(
            store, book, notes, lambda: void(loop.call_soon_threadsafe(ended.set)), lambda: NOON_S
        )
        try:
            await test(desk, store, notes)
        finally:
            await desk.stop()
            await asyncio.wait_for(ended.wait(), 10)

    asyncio.run(run())


def void(_: object) -> None:
    pass


def test_of_a_hundred_at_once_only_as_many_pass_as_the_limit_has_room_for(tmp_path: Path) -> None:
    async def test(desk: LedgerDesk, _: LedgerStore, notes: Notes) -> None:
        found = await asyncio.gather(*(desk.reserve(chat()) for _ in range(100)), return_exceptions=True)
        granted = [one for one in found if isinstance(one, Grant)]
        assert len(granted) == 5
        assert sum(isinstance(one, LimitReached) for one in found) == 95
        for grant in granted:
            desk.settle(grant.id, Amount(1, 10, 10))
        standing = await desk.call(lambda book, now_s: book.standing("alice", now_s))
        assert (standing.used.tokens, standing.held) == (100, Sums())
        assert [(r.kind, r.outcome, r.on) for r in notes.records] == [("limit_reached", "hard", "tokens")]
        await desk.reserve(chat())
        assert [r.outcome for r in notes.records] == ["hard", "soft"]

    with_desk(tmp_path, Limits(tokens=1_000), test)


def test_whoever_leaves_before_the_answer_holds_nothing(tmp_path: Path) -> None:
    async def test(desk: LedgerDesk, _: LedgerStore, __: Notes) -> None:
        waiting = asyncio.create_task(desk.reserve(chat()))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        await desk.reserve(chat("bob"))  # behind it, so that its answer has come
        standing = await desk.call(lambda book, now_s: book.standing("alice", now_s))
        assert (standing.held, standing.used) == (Sums(), Sums())

    with_desk(tmp_path, Limits(tokens=200), test)


def test_while_the_disk_fails_nothing_is_granted_and_what_was_used_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(desk: LedgerDesk, store: LedgerStore, _: Notes) -> None:
        grant = await desk.reserve(chat())

        def full(_: int) -> None:
            raise sqlite3.OperationalError("database or disk is full")

        monkeypatch.setattr(store, "release", full)
        monkeypatch.setattr(store, "used", lambda *_: full(0))
        desk.settle(grant.id, Amount(1, 7, 7))
        with pytest.raises(LedgerUnavailable, match="disk failed"):
            await desk.reserve(chat())
        monkeypatch.undo()
        await desk.reserve(chat("bob"))
        standing = await desk.call(lambda book, now_s: book.standing("alice", now_s))
        assert (standing.used.tokens, standing.held) == (14, Sums())

    with_desk(tmp_path, Limits(tokens=10_000), test)


def test_what_was_settled_before_the_end_is_there_at_the_next_start(tmp_path: Path) -> None:
    async def test(desk: LedgerDesk, _: LedgerStore, __: Notes) -> None:
        desk.settle((await desk.reserve(chat())).id, Amount(1, 3, 4))

    with_desk(tmp_path, Limits(), test)
    store = LedgerStore(tmp_path / "ledger.db")
    assert store.used("alice", "2026-12-02").tokens == 7
    assert store.all_held() == []
    store.close()


def test_a_clock_that_jumps_ahead_purges_no_usage_and_time_that_passes_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.ledger.desk._PURGE_EVERY_S", 0.0)
    tmp_path.chmod(0o700)

    def kept(now_s: float, then_s: float) -> int:
        """Use something, purge at another time, in a process of its own; how many rows are left."""
        return asyncio.run(in_a_life(now_s, then_s))

    async def in_a_life(now_s: float, then_s: float) -> int:
        at_s = now_s
        store = LedgerStore(tmp_path / "ledger.db")
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        desk = LedgerDesk(
            store,
            Book(store, terms(keep_days=31)),
            Notes(),
            lambda: void(loop.call_soon_threadsafe(ended.set)),
            lambda: at_s,
        )
        try:
            grant = await desk.reserve(chat())
            desk.settle(grant.id, Amount(1, 10, 10))
            await desk.call(lambda book, _: None)
            at_s = then_s
            await desk.call(lambda book, _: None)
            return len(await desk.call(lambda book, _: book.rows("", "2020-01-01", "9999-12-31", 10, 0)))
        finally:
            await desk.stop()
            await asyncio.wait_for(ended.wait(), 10)

    day_s = 86_400.0
    assert kept(NOON_S, NOON_S + 5_000 * day_s) == 1
    assert kept(NOON_S + day_s, NOON_S + 5_000 * day_s) == 2, "a start does not help it"
