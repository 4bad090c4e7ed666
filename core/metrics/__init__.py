"""Every metric of Certosa's, declared here and nowhere else.

Names are ``certosa_<noun>_<unit>`` in base units, counters end in ``_total``. A label's values come
from a closed set and are created at the start, so a rate is right from the first event on; what is
not in the set counts as ``other``. A user's id is never a label. Everything here is thread-safe.

Core has :class:`Metrics`, egress :class:`EgressMetrics`; core's ``/metrics`` answers with both, and with
what the spawner says of itself (core/exposition.py). Where a metric was observed for one request, its
id goes along as an exemplar.
"""

from core.metrics.core import Metrics
from core.metrics.egress import EgressMetrics, FetchMetrics
from core.metrics.pool import PoolMetrics
from core.metrics.processes import StoreMetrics

__all__ = ["EgressMetrics", "FetchMetrics", "Metrics", "PoolMetrics", "StoreMetrics"]
