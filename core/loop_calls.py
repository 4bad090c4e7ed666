"""Calls on a loop from other threads, of which many wake it once: its own way costs a system call each."""

import asyncio
import threading
from collections.abc import Callable
from weakref import WeakKeyDictionary, ref

import structlog

_log = structlog.get_logger()


class LoopCalls:
    """What other threads want called on one loop; see :func:`loop_calls`. Thread-safe."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = ref(loop)
        self._lock = threading.Lock()
        self._calls: list[Callable[[], None]] = []

    def post(self, call: Callable[[], None]) -> None:
        """Have ``call`` made on the loop, in the order of posting; never, if the loop is closed."""
        with self._lock:
            self._calls.append(call)
            first = len(self._calls) == 1
        if first and not self._woken():
            self._taken()  # whoever lived there is gone

    def _woken(self) -> bool:
        loop = self._loop()
        if loop is None:
            return False
        try:
            loop.call_soon_threadsafe(self._make)
        except RuntimeError:  # it is closed
            return False
        return True

    def _make(self) -> None:
        for call in self._taken():
            try:
                call()
            except Exception:  # noqa: BLE001 - the others' calls are to be made all the same
                _log.exception("call_on_loop_crashed")

    def _taken(self) -> list[Callable[[], None]]:
        with self._lock:
            calls, self._calls = self._calls, []
        return calls


_of_loops: "WeakKeyDictionary[asyncio.AbstractEventLoop, LoopCalls]" = WeakKeyDictionary()


def loop_calls() -> LoopCalls:
    """Those of the running loop."""
    loop = asyncio.get_running_loop()
    found = _of_loops.get(loop)
    if found is None:
        found = _of_loops[loop] = LoopCalls(loop)
    return found
