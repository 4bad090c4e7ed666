"""What a benchmark gives back: one line of ``scripts/bench``."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Result:
    """One measurement beside its floor, both taken in the same run.

    Args:
        bench: the benchmark's name.
        varied: what was set for this line, such as ``{"streams": 49}``; CPU placement too.
        median, p99: of the samples, in ``unit``.
        unit: "s", "us" or "bytes".
        floor: the median of the least that could do the job, in ``unit``.
    """

    bench: str
    varied: dict[str, str | int | float]
    median: float
    p99: float
    unit: str
    floor: float

    @property
    def ratio(self) -> float:
        """The median over the floor."""
        return self.median / self.floor


def median_and_p99(samples: list[float]) -> tuple[float, float]:
    """The two figures of a Result; the p99 of few samples is the worst of them."""
    ordered = sorted(samples)
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    return median, ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
