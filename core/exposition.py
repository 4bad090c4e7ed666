"""What ``/metrics`` answers: core's metrics, and what the other trusted processes say of theirs, in one.

The others are asked at each scrape, all at once and for a limited time; whoever does not answer is left
out, and ``certosa_process_up`` says so. Rendered in a thread: some thousand lines take milliseconds that
the loop has better uses for. In OpenMetrics where the scraper accepts it, which has exemplars.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

import structlog
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.samples import Exemplar

from core.errors import CoreError
from core.families import Family, families_of
from core.metrics import Metrics
from jail.host.measure import own_use

SCRAPE_S = 3.0
"""What the others may take; a scraper waits 10 s unless told otherwise."""

_log = structlog.get_logger()


class _Collected:
    """Families as something that an encoder takes; those of one name, from several processes, as one."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._metrics: dict[str, Metric] = {}
        for family in families:
            if (metric := self._metrics.get(family.name)) is None:
                metric = self._metrics[family.name] = Metric(family.name, family.text, family.kind)
            for point in family.points:
                exemplar = Exemplar(*point.exemplar) if point.exemplar is not None else None
                metric.add_sample(point.name, point.labels, point.value, exemplar=exemplar)

    def collect(self) -> Iterator[Metric]:
        yield from self._metrics.values()


def render(families: Iterable[Family], accept: str) -> tuple[bytes, str]:
    """The body and its content type, in the best format that ``Accept`` names."""
    encode, content_type = choose_encoder(accept)
    return encode(_Collected(families)), content_type


Ask = Callable[[], Awaitable[Iterable[Family]]]
"""Asks a process for its metrics, or brings core's up to date with what it says; may raise CoreError."""


class Exposition:
    """Used on the hub's loop.

    Args:
        others: whom to ask at each scrape, by the name of the process; "pool" is core's own.
    """

    def __init__(self, metrics: Metrics, others: Mapping[str, Ask]) -> None:
        self._metrics = metrics
        self._others = dict(others)
        self._turn = asyncio.Lock()  # one scrape at a time: they cost others something

    async def render(self, accept: str) -> tuple[bytes, str]:
        """The answer to a scrape."""
        async with self._turn:
            self._metrics.process_up("core", True)
            self._metrics.processes.show("core", own_use())
            answers = await asyncio.gather(*(self._ask(name, ask) for name, ask in self._others.items()))

            def work() -> tuple[bytes, str]:
                found = list(families_of(self._metrics.registry))
                for answer in answers:
                    found += answer
                return render(found, accept)

            return await asyncio.to_thread(work)

    async def _ask(self, name: str, ask: Ask) -> Iterable[Family]:
        found: Iterable[Family] = ()
        up = False
        try:
            async with asyncio.timeout(SCRAPE_S):
                found = await ask()
            up = True
        except (CoreError, TimeoutError) as error:
            _log.warning("metrics_not_told", process=name, error=str(error) or type(error).__name__)
        if name != "pool":
            self._metrics.process_up(name, up)
        return found
