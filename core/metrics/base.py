"""What several metrics have in common."""

from collections.abc import Sequence
from typing import get_args

from prometheus_client import CollectorRegistry, Counter

from jail.wire.schema import ErrorCode

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
COMMIT_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
CHAT_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640)
OUTCOMES = ("ok", *get_args(ErrorCode), "other")


def exemplar(request: str) -> dict[str, str] | None:
    """What ties an observation to its request; None where there is none."""
    return {"request_id": request} if request else None


class Labelled:
    """A counter with one label of a closed set, ``other`` among it."""

    def __init__(
        self, registry: CollectorRegistry, name: str, text: str, label: str, values: Sequence[str]
    ) -> None:
        counter = Counter(name, text, (label,), registry=registry)
        self._children = {value: counter.labels(value) for value in values}

    def inc(self, value: str) -> None:
        """Count one of those; what is not in the set is ``other``."""
        self._children.get(value, self._children["other"]).inc()
