"""How much memory bytes from a peer may cost, and the measure that holds it to that.

Measured at Python's allocators, which the C unpackers use too. A bound is a base that does not depend
on the input, plus a factor of the bytes that came, plus what small values cost, which are limited in
number: an empty map is one byte on the wire and 72 in memory.
"""

import tracemalloc
from collections.abc import Callable
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Bound(NamedTuple):
    """``base + factor * size + min(small * size, small_most)``, in bytes."""

    base: int
    factor: int
    small: int
    small_most: int

    def of(self, size: int) -> int:
        """The bound for ``size`` bytes from the peer."""
        return self.base + self.factor * size + min(self.small * size, self.small_most)


# A text with one wide character costs 5 bytes for each of its own while it is decoded. The base is what
# a frame too short to be looked through makes the unpacker allocate (jail/wire/frames.py).
DECODED = Bound(base=1_600_000, factor=6, small=80, small_most=4 << 20)
# Structs, and the frames that answer, beside the decoded values.
UNDERSTOOD = Bound(base=1_800_000, factor=8, small=160, small_most=8 << 20)
# The messages of a read beside the buffer: the shortest is two bytes and a bytes object.
UNFRAMED = Bound(base=8_192, factor=4, small=40, small_most=16 << 20)
CONVERTED = Bound(base=16_384, factor=4, small=40, small_most=4 << 20)


class MemoryExceeded(AssertionError):
    """An input cost more memory than the bound says."""


class Traced:
    """Tracing on inside, and off again where it was off before."""

    def __enter__(self) -> None:
        self._ours = not tracemalloc.is_tracing()
        if self._ours:
            tracemalloc.start()

    def __exit__(self, *_: object) -> None:
        if self._ours:
            tracemalloc.stop()


def within(bound: Bound, size: int, call: Callable[[], T]) -> T:
    """What ``call`` returns or raises; MemoryExceeded where its peak passes the bound for ``size``."""
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    try:
        return call()
    finally:
        _, peak = tracemalloc.get_traced_memory()
        if peak - before > bound.of(size):
            raise MemoryExceeded(f"{peak - before} bytes for {size}, {bound.of(size)} allowed")
