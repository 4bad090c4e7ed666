"""What a load test's generator notes down, by windows of time, small enough for a run of hours."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from core.capacity.client import Turn

WINDOW_S = 5.0
_GROWTH = math.log(1.02)
_LEAST_MS = 0.01


class Histogram:
    """Times in buckets 2 % wide: a percentile is exact to 1 %, and histograms can be added."""

    def __init__(self, counts: dict[int, int] | None = None) -> None:
        self._counts: Counter[int] = Counter(counts or {})

    def add(self, ms: float) -> None:
        """Count a time (in milliseconds)."""
        self._counts[round(math.log(max(ms, _LEAST_MS)) / _GROWTH)] += 1

    def merge(self, other: "Histogram") -> None:
        """Count all of another's."""
        self._counts.update(other._counts)

    @property
    def count(self) -> int:
        """How many there are."""
        return self._counts.total()

    def percentile(self, share: float) -> float | None:
        """The time below which that share of all is (0 to 1), in milliseconds; None without any."""
        wanted = max(1, math.ceil(share * self.count))
        seen = 0
        for bucket in sorted(self._counts):
            seen += self._counts[bucket]
            if seen >= wanted:
                return math.exp(bucket * _GROWTH)
        return None

    def to_json(self) -> list[list[int]]:
        """Pairs of bucket and count."""
        return [[bucket, count] for bucket, count in sorted(self._counts.items())]

    @classmethod
    def from_json(cls, pairs: Iterable[tuple[int, int]]) -> "Histogram":
        """What :meth:`to_json` gave."""
        return cls(dict(pairs))


_TIMES = ("delta", "floor", "first", "whole")


@dataclass(slots=True)
class Window:
    """Some seconds: times from there, turns by how they ended ("" is well), and of those not judged."""

    delta: Histogram = field(default_factory=Histogram)
    floor: Histogram = field(default_factory=Histogram)
    first: Histogram = field(default_factory=Histogram)
    whole: Histogram = field(default_factory=Histogram)
    ends: Counter[str] = field(default_factory=Counter)
    unjudged: Counter[str] = field(default_factory=Counter)
    served: Counter[str] = field(default_factory=Counter)
    """Tokens by ``KIND/PERSON``."""

    def merge(self, other: "Window") -> None:
        """Add another's."""
        for name in _TIMES:
            getattr(self, name).merge(getattr(other, name))
        self.ends.update(other.ends)
        self.unjudged.update(other.unjudged)
        self.served.update(other.served)

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
        counted = {"ends": self.ends, "unjudged": self.unjudged, "served": self.served}
        return {name: getattr(self, name).to_json() for name in _TIMES} | {
            name: dict(counter) for name, counter in counted.items()
        }

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> "Window":
        """What :meth:`to_json` gave."""
        times = {name: Histogram.from_json(found[name]) for name in _TIMES}
        return cls(
            **times, ends=Counter(found["ends"]), unjudged=Counter(found["unjudged"]),
            served=Counter(found["served"]),
        )  # fmt: skip


class Recorder:
    """Takes turns as they end.

    Args:
        began_s: when the test began (monotonic).
    """

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self.windows: dict[int, Window] = {}

    def turn(self, turn: Turn, judged: bool) -> None:
        """A turn ended; of what is not judged only its end is counted."""
        window = self._window(turn.began_s + turn.whole_ms / 1_000)
        if not judged:
            window.unjudged[turn.error] += 1
            return
        window.ends[turn.error] += 1
        if turn.first_ms is not None:
            self._window(turn.began_s + turn.first_ms / 1_000).first.add(turn.first_ms)
        if not turn.error:
            window.whole.add(turn.whole_ms)

    def tokens(self, who: str, now_s: float, delays_ms: list[float]) -> None:
        """A person (``KIND/NUMBER``) was given tokens."""
        window = self._window(now_s)
        window.served[who] += len(delays_ms)
        for delay_ms in delays_ms:
            window.delta.add(delay_ms)

    def floor(self, now_s: float, delays_ms: list[float]) -> None:
        """Tokens came straight from the model server."""
        window = self._window(now_s)
        for delay_ms in delays_ms:
            window.floor.add(delay_ms)

    def to_json(self) -> list[dict[str, Any]]:
        """The windows, each with ``at_s``, its begin."""
        return [{"at_s": n * WINDOW_S, **self.windows[n].to_json()} for n in sorted(self.windows)]

    def _window(self, at_s: float) -> Window:
        return self.windows.setdefault(int((at_s - self.began_s) // WINDOW_S), Window())


def merged(windows: Iterable[dict[str, Any]], from_s: float) -> Window:
    """All that began at ``from_s`` or later."""
    whole = Window()
    for found in windows:
        if found["at_s"] >= from_s:
            whole.merge(Window.from_json(found))
    return whole
