"""An answer that comes from another thread to a coroutine that waits for it."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from core.errors import LinkError

T = TypeVar("T")


async def promised(
    ask: Callable[[Callable[[T], None]], None],
    timeout_s: float,
    who: str,
    late: Callable[[], None] = lambda: None,
) -> T:
    """Call ``ask(settle)`` and wait until somebody, on any thread, calls ``settle(answer)``.

    Raises LinkError past ``timeout_s``, after a call of ``late``; ``who`` should have answered. A late
    answer is dropped.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle_here(value: T) -> None:
        if not answer.done():
            answer.set_result(value)

    def settle(value: T) -> None:
        loop.call_soon_threadsafe(settle_here, value)

    ask(settle)
    try:
        async with asyncio.timeout(timeout_s):
            return await answer
    except TimeoutError:
        late()
        raise LinkError(f"{who} did not answer in {timeout_s:.0f} s; try again") from None
