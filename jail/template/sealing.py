"""Leaves no gap in the template's memory, so that what its forks allocate lies in pages of their own.

An allocator gives out freed places first, and in a warm interpreter these are spread over all of the heap:
each would be the copy of a page that holds something else. So all of them are taken, for ever.
"""

import ctypes
from collections.abc import Callable
from itertools import pairwise
from typing import Final

# CPython's own allocator serves sizes up to 512 bytes in steps of 16, from pools of one size each
# (Objects/obmalloc.c); a pool of the largest has 31 places
_STEP: Final = 16
_MAX_SMALL_BYTES: Final = 512
_BATCH: Final = 64
_FRESH: Final = 24  # so many in a row are not found in gaps; of a batch from fresh pools some are
_MAX_KEPT_BYTES: Final = 1 << 20  # of each size; where another allocator serves it is not to go on for ever
_MAX_LARGE_BYTES: Final = 65_536  # malloc(3) maps what is twice as large by itself

_kept: list[object] = []


class _Heap(ctypes.Structure):
    """struct mallinfo2; see mallinfo(3)."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks",
            "keepcost",
        )
    )  # fmt: skip


def seal() -> None:
    """Take all free places there are. What is freed later makes new ones."""
    for size in range(_STEP, _MAX_SMALL_BYTES + 1, _STEP):
        _fill_pools(size)
    _fill_heap()


def _fill_pools(size: int) -> None:
    make = _maker(size)
    for _ in range(_MAX_KEPT_BYTES // (size * _BATCH)):
        batch = [make() for _ in range(_BATCH)]
        places = [id(block) for block in batch]
        if _longest_row(places, size) >= _FRESH:
            return
        _kept.extend(batch)


def _maker(size: int) -> Callable[[], object]:
    """Makes objects that take so many bytes of the allocator's, without a list of spare ones."""
    if size == 16:
        return object
    if size == 32:
        return lambda: complex(size)
    length = size - b"".__sizeof__()
    return lambda: bytes(length)


def _longest_row(places: list[int], size: int) -> int:
    longest = row = 1
    for before, place in pairwise(places):
        row = row + 1 if place == before + size else 1
        longest = max(longest, row)
    return longest


def _fill_heap() -> None:
    """The same for malloc(3), from the largest gaps to the smallest: its top is what is never a gap."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        return  # not glibc, or one before 2.33
    libc.malloc.argtypes, libc.malloc.restype = (ctypes.c_size_t,), ctypes.c_size_t
    libc.free.argtypes, libc.free.restype = (ctypes.c_size_t,), None
    libc.sbrk.argtypes, libc.sbrk.restype = (ctypes.c_ssize_t,), ctypes.c_size_t
    libc.mallinfo2.restype = _Heap
    top = libc.sbrk(0) - libc.mallinfo2().keepcost
    for size in range(_MAX_LARGE_BYTES, 0, -_STEP):
        while 0 < (place := libc.malloc(size)) < top:
            pass
        libc.free(place)
