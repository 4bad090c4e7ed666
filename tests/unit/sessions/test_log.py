"""A turn's log and its readers, on one event loop."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from contextlib import aclosing

from core.loop_calls import LoopCalls, loop_calls
from core.sessions.log import Behind, Finished, LogEvent, TurnLog
from jail.wire.schema import Delta, Failure, Notice, TurnEnd

END = TurnEnd("stop")


def make_log(max_bytes: int = 1 << 20, first_id: int = 1, max_age_s: float = 60.0) -> TurnLog:
    return TurnLog(loop_calls(), first_id, max_bytes, max_age_s, None, lambda _: None)


def say(log: TurnLog, *texts: str) -> int:
    """Append texts; returns how many were accepted at once."""
    accepted: list[str] = []
    for text in texts:
        log.append(Delta(text), lambda: accepted.append("yes"))
    return len(accepted)


async def read_all(log: TurnLog, after_id: int | None = None) -> tuple[list[int], object]:
    ids: list[int] = []
    async with aclosing(log.watch(after_id)) as found:
        async for batch in found:
            if not isinstance(batch, tuple):
                return ids, batch
            ids += [event.id for event in batch]
    raise AssertionError("watch ended without saying why")


def test_every_reader_gets_every_event_and_the_end() -> None:
    async def main() -> None:
        log = make_log()
        readers = [asyncio.create_task(read_all(log)) for _ in range(3)]
        await asyncio.sleep(0)
        assert say(log, "a", "b") == 2
        await asyncio.sleep(0)
        say(log, "c")
        log.finish(END)
        late = await read_all(log)
        for found in [*await asyncio.gather(*readers), late]:
            assert found == ([1, 2, 3], Finished(END))

    asyncio.run(main())


def test_ids_go_on_from_where_the_session_was_and_a_cursor_skips_what_it_has() -> None:
    async def main() -> None:
        log = make_log(first_id=41)
        say(log, "a", "b", "c")
        log.finish(END)
        assert (await read_all(log))[0] == [41, 42, 43]
        assert (await read_all(log, 42))[0] == [43]
        assert await read_all(log, 43) == ([], Finished(END))

    asyncio.run(main())


def test_a_reader_that_falls_out_of_the_window_is_told_its_last_id() -> None:
    async def main() -> None:
        log = make_log(max_bytes=5_000)
        slow = log.watch()
        say(log, "first")
        first = await anext(slow)
        assert isinstance(first, tuple)
        assert first[-1].id == 1
        quick = asyncio.create_task(read_all(log))
        for _ in range(100):
            say(log, "x" * 500)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        log.finish(END)
        assert await anext(slow) == Behind(1)
        await slow.aclose()
        # the one beside it, which kept up, lost nothing
        assert await quick == (list(range(1, 102)), Finished(END))

    asyncio.run(main())


def test_the_window_holds_no_more_than_its_bytes_however_small_the_events() -> None:
    async def main() -> None:
        log = make_log(max_bytes=10_000)
        say(log, *["x"] * 10_000)
        assert len(log._window) < 25
        log.finish(END)

    asyncio.run(main())


def test_old_events_leave_the_window() -> None:
    async def main() -> None:
        log = make_log(max_age_s=0.0)
        say(log, "a")
        await asyncio.sleep(0.01)
        say(log, "b")
        log.finish(END)
        assert await read_all(log, 0) == ([], Behind(0))
        assert await read_all(log, 1) == ([2], Finished(END))

    asyncio.run(main())


def test_an_idle_reader_gets_an_empty_batch_and_loses_nothing() -> None:
    async def main() -> None:
        log = make_log()
        async with aclosing(log.watch(idle_s=0.01)) as found:
            assert await anext(found) == ()
            assert await anext(found) == ()
            say(log, "a")
            batch = await anext(found)
            assert isinstance(batch, tuple)
            assert [event.id for event in batch] == [1]
        assert not log._readers

    asyncio.run(main())


def test_a_burst_wakes_the_loop_once() -> None:
    async def main() -> None:
        posted: list[Callable[[], None]] = []

        class Loop:
            def call_soon_threadsafe(self, callback: Callable[[], None]) -> None:
                posted.append(callback)

        loop = Loop()
        log = TurnLog(LoopCalls(loop), 1, 1 << 20, 60.0, None, lambda _: None)  # type: ignore[arg-type]
        say(log, "a", "b", "c")
        assert len(posted) == 1
        posted[0]()
        say(log, "d", "e")
        assert len(posted) == 2

    asyncio.run(main())


def test_only_the_first_end_counts_and_nothing_follows_it() -> None:
    async def main() -> None:
        ends: list[TurnEnd | Failure] = []
        log = TurnLog(loop_calls(), 1, 1 << 20, 60.0, None, ends.append)
        log.append(Notice("n"), lambda: None)
        log.finish(END)
        log.finish(Failure("internal", "again"))
        assert say(log, "late") == 1  # whoever appended it is not left waiting
        assert ends == [END]
        assert await read_all(log) == ([1], Finished(END))

    asyncio.run(main())


def test_a_log_that_has_ended_goes_with_its_last_reader() -> None:
    """Its events are most of a busy core's memory: they must not lie about until garbage is collected."""

    async def made(ends: list[int]) -> weakref.ref[TurnLog]:
        log = TurnLog(
            loop_calls(), 1, 1 << 20, 60.0, None, lambda _: ends.append(log.last_id),
            lambda why, _: log.finish(why),
        )  # fmt: skip
        say(log, "a", "b")
        if finishes:
            log.finish(END)
            assert (await read_all(log), ends) == (([1, 2], Finished(END)), [2])
        return weakref.ref(log)

    async def main() -> bool:
        left = await made([])
        await asyncio.sleep(0)  # what was to wake readers is done
        return left() is None

    gc.disable()
    try:
        finishes = True
        assert asyncio.run(main())
        finishes = False
        assert not asyncio.run(main())  # the control: callbacks that know it do hold it
    finally:
        gc.enable()


def test_nobody_reads_the_end_before_it_is_written_down() -> None:
    """Whoever is told of it may at once say something else in the session."""

    async def main() -> None:
        writing, written = threading.Event(), threading.Event()

        def write_down(_: object) -> None:
            writing.set()
            assert written.wait(20)

        log = TurnLog(loop_calls(), 1, 1 << 20, 60.0, None, write_down)
        finishing = asyncio.create_task(asyncio.to_thread(log.finish, END))
        try:
            assert await asyncio.to_thread(writing.wait, 20)
            async with aclosing(log.watch(idle_s=0.01)) as found:
                assert await anext(found) == ()
        finally:
            written.set()
            await finishing
        assert await read_all(log) == ([], Finished(END))

    asyncio.run(main())


def test_a_log_whose_loop_is_gone_still_takes_events() -> None:
    async def main() -> TurnLog:
        return make_log()

    log = asyncio.run(main())
    assert say(log, "a") == 1
    log.finish(END)
    assert log.finished


def test_events_carry_their_encoding_for_the_disk() -> None:
    async def main() -> None:
        log = make_log()
        say(log, "a")
        batch = await anext(log.watch())
        assert isinstance(batch, tuple)
        event = batch[0]
        assert isinstance(event, LogEvent)
        assert event.item == Delta("a")
        assert b"delta" in event.data

    asyncio.run(main())
