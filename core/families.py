"""Metrics on their way between our processes, as they are at one moment."""

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.samples import Exemplar


class Point(msgspec.Struct, frozen=True, array_like=True):
    """One series' value, with the exemplar ``(labels, value, Unix time)`` if it has one."""

    name: str
    labels: dict[str, str]
    value: float
    exemplar: tuple[dict[str, str], float, float] | None = None


class Family(msgspec.Struct, frozen=True, array_like=True):
    """A metric with its series; ``kind`` in prometheus_client's words."""

    name: str
    text: str
    kind: str
    points: tuple[Point, ...]


def families_of(registry: CollectorRegistry) -> tuple[Family, ...]:
    """A registry's metrics as they are now. When a series was made is nobody's question: that is left out."""
    return tuple(
        Family(
            found.name,
            found.documentation,
            found.type,
            tuple(
                Point(sample.name, sample.labels, sample.value, _exemplar(sample.exemplar))
                for sample in found.samples
                if not sample.name.endswith("_created")
            ),
        )
        for found in registry.collect()
    )


def _exemplar(found: Exemplar | None) -> tuple[dict[str, str], float, float] | None:
    if found is None:
        return None
    return dict(found.labels), found.value, float(found.timestamp or 0)
