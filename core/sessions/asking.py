"""A question to the storage threads that a coroutine waits for."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import structlog

from core.errors import CoreError
from core.sessions.errors import StorageError
from core.sessions.storage import Storage
from core.sessions.store import UserStore
from core.vault.handle import UserHandle

_T = TypeVar("_T")

_TIMEOUT_S = 15.0

_log = structlog.get_logger()


async def ask_storage(
    storage: Storage, handle: UserHandle, work: Callable[[UserStore], _T], size_bytes: int = 0
) -> _T:
    """Have storage do ``work`` and wait for it on this loop; raises what ``failed`` would get."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[_T] = loop.create_future()

    def settle(set_: Callable[[], None]) -> None:
        try:
            loop.call_soon_threadsafe(lambda: None if answer.done() else set_())
        except RuntimeError:
            _log.debug("storage_answer_came_after_loop")  # the loop closed: nobody waits

    def done(result: _T) -> None:
        settle(lambda: answer.set_result(result))

    def failed(error: CoreError) -> None:
        settle(lambda: answer.set_exception(error))

    storage.submit(handle, work, done, failed, size_bytes=size_bytes)
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            return await answer
    except TimeoutError:
        storage.timed_out("store")
        raise StorageError("unavailable", "storing took too long: try again later") from None
