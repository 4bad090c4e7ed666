"""Calls on a loop from other threads."""

import asyncio
import gc
import threading
import weakref

from structlog.testing import capture_logs

from core.loop_calls import LoopCalls, loop_calls


def test_a_burst_wakes_the_loop_once_and_keeps_its_order() -> None:
    async def main() -> None:
        wakeups = 0
        loop = asyncio.get_running_loop()
        really = loop.call_soon_threadsafe

        def counted(*arguments: object) -> asyncio.Handle:
            nonlocal wakeups
            wakeups += 1
            return really(*arguments)  # type: ignore[arg-type]

        loop.call_soon_threadsafe = counted  # type: ignore[method-assign, assignment]
        calls, made = loop_calls(), list[int]()

        def post(first: int) -> None:
            for number in range(first, first + 50):
                calls.post(lambda number=number: made.append(number))  # type: ignore[misc]

        for first in (0, 50):
            thread = threading.Thread(target=post, args=(first,))
            thread.start()
            thread.join()  # the loop is not running meanwhile
        await asyncio.sleep(0)
        assert (made, wakeups) == (list(range(100)), 1)
        post(100)
        await asyncio.sleep(0)
        assert (made[100:], wakeups) == (list(range(100, 150)), 2)

    asyncio.run(main())


def test_what_a_call_posts_is_made_too_and_one_that_crashes_takes_no_other_along() -> None:
    async def main() -> None:
        calls, made = loop_calls(), list[str]()

        def crash() -> None:
            raise RuntimeError("a bug")

        calls.post(lambda: calls.post(lambda: made.append("inner")))
        calls.post(crash)
        calls.post(lambda: made.append("outer"))
        with capture_logs() as logs:
            for _ in range(3):
                await asyncio.sleep(0)
        assert made == ["outer", "inner"]
        assert [line["event"] for line in logs] == ["call_on_loop_crashed"]

    asyncio.run(main())


def test_each_loop_has_its_own_and_a_closed_one_holds_nothing() -> None:
    async def own() -> LoopCalls:
        assert loop_calls() is loop_calls()
        return loop_calls()

    first, second = asyncio.run(own()), asyncio.run(own())
    assert first is not second

    class Something:
        def call(self) -> None:
            raise AssertionError("its loop is closed")

    something = Something()
    left = weakref.ref(something)
    first.post(something.call)
    del something
    gc.collect()
    assert left() is None
