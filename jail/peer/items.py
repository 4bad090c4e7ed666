"""A turn's items on their way to core: in order, within credit, deltas merged while they wait.

A model may write faster than core takes it. Then pieces of text that wait side by side become
one, and past a bound whoever produces waits: it consumes no more, and its own answerer stops.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from jail.wire.schema import Delta, TurnItem

_PENDING_BYTES = 32 * 1024  # merging copies what waits, so this also bounds the copying
_PENDING_ITEMS = 64


class ItemQueue:
    """Items that wait for credit. All of it runs on the loop's thread.

    Args:
        credit: how many items may be sent now.
        send: sends one item; called only while ``credit()`` is above 0.
    """

    def __init__(self, credit: Callable[[], int], send: Callable[[TurnItem], None]) -> None:
        self._credit = credit
        self._send = send
        self._waiting: deque[TurnItem] = deque()
        self._bytes = 0
        self._moved = asyncio.Event()

    @property
    def waiting(self) -> int:
        """How many items wait."""
        return len(self._waiting)

    async def put(self, item: TurnItem) -> None:
        """Add an item behind the others, and wait while more than the bound waits."""
        self.add(item)
        while self.full:
            self._moved.clear()
            await self._moved.wait()

    def add(self, item: TurnItem) -> None:
        """Add an item without waiting; the caller looks at :attr:`full` before."""
        last = self._waiting[-1] if self._waiting else None
        merged = _merge(last, item) if last is not None else None
        if merged is not None:
            self._waiting[-1] = merged
        else:
            self._waiting.append(item)
        self._bytes += _size(item)
        self.pump()

    @property
    def full(self) -> bool:
        """Whether as much waits as may."""
        return self._bytes > _PENDING_BYTES or len(self._waiting) > _PENDING_ITEMS

    def pump(self) -> None:
        """Send what credit allows."""
        while self._waiting and self._credit() > 0:
            item = self._waiting.popleft()
            self._bytes -= _size(item)
            self._send(item)
        self._moved.set()

    async def flush(self, timeout_s: float) -> bool:
        """Wait until all has been sent; False when ``timeout_s`` did not suffice."""
        try:
            async with asyncio.timeout(timeout_s):
                while self._waiting:
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            return False
        return True


def _merge(last: TurnItem, new: TurnItem) -> Delta | None:
    """Two deltas of the same kind as one; text and reasoning keep their order by staying apart."""
    if not isinstance(last, Delta) or not isinstance(new, Delta):
        return None
    if _size(last) + _size(new) > 2 * _PENDING_BYTES:
        return None
    if bool(last.text) != bool(new.text) or bool(last.reasoning) != bool(new.reasoning):
        return None
    return Delta(last.text + new.text, last.reasoning + new.reasoning)


def _size(item: TurnItem) -> int:
    """Characters, up to a factor the bytes that wait; additive under :func:`_merge`."""
    if isinstance(item, Delta):
        return len(item.text) + len(item.reasoning)
    return len(getattr(item, "text", "")) + len(getattr(item, "arguments", ""))
