"""The highest number of streams that holds the objectives, by halving between two that do and don't."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

_NEAR = 0.1
"""It is found once it lies between two that differ by this part."""

Attempt = Callable[[int], tuple[bool, dict[str, Any]]]
"""A test with so many streams: whether it held, and its results."""


@dataclass(slots=True)
class Knee:
    """``streams``: the most that held (0: none did); ``tried``: every test's number and results."""

    streams: int = 0
    tried: list[tuple[int, dict[str, Any]]] = field(default_factory=list)


def search(low: int, high: int, attempt: Attempt) -> Knee:
    """Look between two numbers; ValueError for bounds that are none."""
    if not 2 <= low < high:
        raise ValueError(f"the knee is looked for between two numbers, 2 or more: {low} and {high} are not")
    knee = Knee()

    def holds(streams: int) -> bool:
        met, result = attempt(streams)
        knee.tried.append((streams, result))
        if met:
            knee.streams = max(knee.streams, streams)
        return met

    if not holds(low):
        return knee
    if holds(high):
        return knee
    while high - low > max(1, _NEAR * low):
        middle = (low + high) // 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return knee
