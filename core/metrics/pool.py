"""The pool's metrics."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import get_args

from prometheus_client import CollectorRegistry, Gauge, Histogram
from prometheus_client.core import GaugeHistogramMetricFamily, GaugeMetricFamily, Metric

from core.metrics.base import SECONDS, Labelled
from core.pool.jails import PoolNow, State, Why, WhyNot

JAIL_BYTES = tuple(mb << 20 for mb in (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1_024))
"""Upper bounds for the memory of one jail; the last is that of no bound."""


class PoolMetrics:
    """The pool's part; its methods are called by the pool's actor, and :meth:`show` at a scrape."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._now = PoolNow()
        registry.register(self)
        jails = Gauge("certosa_pool_jails", "Jails, by state.", ("state",), registry=registry)
        self._jails = {state: jails.labels(state) for state in get_args(State)}
        self._memory = Gauge(
            "certosa_pool_memory_bytes", "Proportional memory of all jails.",
            registry=registry,
        )  # fmt: skip
        self._evictions = Labelled(
            registry, "certosa_pool_evictions_total", "Jails given up, by why.", "reason",
            (*get_args(Why), "other"),
        )  # fmt: skip
        self._refused = Labelled(
            registry, "certosa_pool_refused_total", "Jails that were wanted and not started, by why.",
            "reason", (*get_args(WhyNot), "other"),
        )  # fmt: skip
        self._wait_s = Histogram(
            "certosa_pool_wait_seconds", "What a jail waited for room before its start.",
            buckets=SECONDS, registry=registry,
        )  # fmt: skip

    def now(self, counts: Mapping[State, int], memory_bytes: int) -> None:
        """The jails by state, and what they hold together."""
        for state, count in counts.items():
            self._jails[state].set(count)
        self._memory.set(memory_bytes)

    def show(self, now: PoolNow) -> None:
        """What the pool and the machine have just now."""
        self._now = now

    def collect(self) -> Iterator[Metric]:
        """For the registry: what :meth:`show` was last given."""
        now = self._now
        for name, text, value in (
            ("pool_private_memory_bytes", "Of it what no other process shares.", now.private_bytes),
            (
                "pool_memory_budget_bytes",
                "What jails may hold together: the configured limit, or what the machine has to spare.",
                now.budget_bytes,
            ),
            ("pool_processes", "Processes in all jails, as last measured.", now.processes),
            ("pool_jails_limit", "Jails that may be alive at once.", now.jails_limit),
            (
                "pool_capacity_jails",
                "Jails that fit into the budget at the present size of one, at most the limit.",
                now.capacity_jails,
            ),
            ("pool_typical_jail_bytes", "What a further jail is expected to take.", now.typical_bytes),
            ("pool_draining", "Whether the pool is being drained.", int(now.draining)),
            ("machine_memory_bytes", "The machine's memory.", now.machine_bytes),
            ("machine_available_bytes", "What it can give without swapping.", now.available_bytes),
            ("machine_reserve_bytes", "What has to stay available, or none is started.", now.reserve_bytes),
        ):  # fmt: skip
            yield GaugeMetricFamily(f"certosa_{name}", text, value)
        counts = [0] * (len(JAIL_BYTES) + 1)
        for memory_bytes in now.jails_bytes:
            counts[bisect_left(JAIL_BYTES, memory_bytes)] += 1
        bounds = (*(str(float(bound)) for bound in JAIL_BYTES), "+Inf")
        yield GaugeHistogramMetricFamily(
            "certosa_pool_jail_memory_bytes",
            "Proportional memory of each jail that was measured.",
            list(zip(bounds, accumulate(counts), strict=True)),
            sum(now.jails_bytes),
        )

    def evicted(self, why: Why) -> None:
        """An idle jail was given up."""
        self._evictions.inc(why)

    def refused(self, why: WhyNot) -> None:
        """A jail was wanted and not started."""
        self._refused.inc(why)

    def waited(self, seconds: float) -> None:
        """A jail is started, that long after it was wanted."""
        self._wait_s.observe(seconds)
