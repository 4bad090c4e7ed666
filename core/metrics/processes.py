"""What our own processes use, how late they run, and what they write to disk."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from core.metrics.base import COMMIT_SECONDS, SECONDS
from jail.host.measure import ProcessUse
from jail.host.messages import SPAWNER_EVENTS

Loop = Literal["hub", "edge", "egress"]


class LagMetrics:
    """How late loops run, looked at a few times a second."""

    def __init__(self, registry: CollectorRegistry, loops: Sequence[Loop]) -> None:
        lag_s = Histogram(
            "certosa_loop_lag_seconds", "How late a loop runs, by which.", ("loop",),
            buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self._loops = {loop: lag_s.labels(loop) for loop in loops}

    def lagged(self, loop: Loop, seconds: float) -> None:
        """It ran that late."""
        self._loops[loop].observe(seconds)


class StoreMetrics:
    """What is written to disk in groups."""

    def __init__(self, registry: CollectorRegistry, stores: Sequence[str]) -> None:
        commit_s = Histogram(
            "certosa_store_commit_seconds", "One group's transaction, its wait for the disk too.",
            ("store",), buckets=COMMIT_SECONDS, registry=registry,
        )  # fmt: skip
        jobs = Counter("certosa_store_jobs_total", "Jobs in those groups.", ("store",), registry=registry)
        failures = Counter(
            "certosa_store_failures_total", "Groups that the disk or the database refused.", ("store",),
            registry=registry,
        )  # fmt: skip
        self._stores = {name: (commit_s.labels(name), jobs.labels(name)) for name in stores}
        self._failures = {name: failures.labels(name) for name in stores}

    def committed(self, store: str, seconds: float, jobs: int) -> None:
        """A group of so many jobs is on its way to the disk, or on it."""
        commit_s, count = self._stores[store]
        commit_s.observe(seconds)
        count.inc(jobs)

    def failed(self, store: str) -> None:
        """A group came to nothing."""
        self._failures[store].inc()


class ProcessMetrics:
    """What our own processes use; each tells of itself."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._uses: dict[str, ProcessUse] = {}
        registry.register(self)

    def show(self, process: str, use: ProcessUse) -> None:
        """What a process said."""
        self._uses[process] = use

    def collect(self) -> Iterator[Metric]:
        """For the registry: what :meth:`show` was given."""
        cpu = CounterMetricFamily("certosa_process_cpu_seconds", "CPU time used.", labels=["process"])
        gauges = [
            GaugeMetricFamily(f"certosa_process_{name}", text, labels=["process"])
            for name, text in (
                ("memory_bytes", "Resident memory."),
                ("descriptors", "Open descriptors."),
                ("descriptors_limit", "Descriptors that may be open."),
                ("threads", "Threads."),
                ("start_time_seconds", "When it was started (Unix time)."),
            )
        ]
        for process, use in self._uses.items():
            cpu.add_metric([process], use.cpu_s)
            values = (use.memory_bytes, use.descriptors, use.descriptors_limit, use.threads, use.started_s)
            for gauge, value in zip(gauges, values, strict=True):
                gauge.add_metric([process], value)
        yield cpu
        yield from gauges


class SpawnerMetrics:
    """What the spawner counts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counts: Mapping[str, int] = {}
        registry.register(self)

    def show(self, counts: Mapping[str, int]) -> None:
        """What it said; events that it does not name have not happened."""
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        """For the registry: what :meth:`show` was given."""
        family = CounterMetricFamily(
            "certosa_spawner_events", "What happened to the server's processes, since it was started.",
            labels=["event"],
        )  # fmt: skip
        for event in SPAWNER_EVENTS:
            family.add_metric([event], self._counts.get(event, 0))
        yield family
