"""Egress's metrics: providers, agents' requests outside, the vault, ledger and audit log."""

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from core.acting import current_request
from core.audit.records import KINDS
from core.metrics.base import CHAT_SECONDS, COMMIT_SECONDS, OUTCOMES, Labelled, exemplar
from core.metrics.processes import LagMetrics, ProcessMetrics, StoreMetrics

_BREAKER_STATES = ("closed", "open", "half_open")
_VAULT_OUTCOMES = ("ok", "refused", "failed")


class FetchMetrics:
    """Requests of agents to servers outside."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._ended = Labelled(
            registry, "certosa_fetches_total", "Requests of agents outside, by how they ended.", "outcome",
            OUTCOMES,
        )  # fmt: skip
        self._running = Gauge("certosa_fetches_running", "Of them those under way.", registry=registry)
        self._fetch_s = Histogram(
            "certosa_fetch_seconds", "From such a request's begin to its end.",
            buckets=CHAT_SECONDS, registry=registry,
        )  # fmt: skip

    def began(self) -> None:
        """One goes out."""
        self._running.inc()

    def ended(self, outcome: str, seconds: float) -> None:
        """It ended: ``ok``, ``cancelled`` or a failure's code."""
        self._running.dec()
        self._ended.inc(outcome)
        self._fetch_s.observe(seconds, exemplar(current_request()))


class EgressMetrics:
    """Egress's metrics, in a registry of their own.

    Args:
        providers: names of those that are configured, ``builtin`` too.
        operations: what the vault may be asked.
    """

    def __init__(self, providers: Iterable[str], operations: Sequence[str]) -> None:
        self.registry = r = CollectorRegistry()
        self._requests = Counter(
            "certosa_provider_requests_total", "Tries of requests to providers, by how they ended.",
            ("provider", "outcome"), registry=r,
        )  # fmt: skip
        self._running = Gauge(
            "certosa_provider_requests_running", "Of them those under way.", ("provider",), registry=r
        )
        self._request_s = Histogram(
            "certosa_provider_request_seconds", "From a request's begin to its end.", ("provider",),
            buckets=CHAT_SECONDS, registry=r,
        )  # fmt: skip
        self._first_s = Histogram(
            "certosa_provider_first_token_seconds", "From a request's begin to the answer's first piece.",
            ("provider",), buckets=CHAT_SECONDS, registry=r,
        )  # fmt: skip
        self._tokens = Counter(
            "certosa_tokens_total", "Tokens as the ledger counts them.", ("provider", "direction"), registry=r
        )
        self._retries = Counter(
            "certosa_provider_retries_total", "Tries after the first.", ("provider",), registry=r
        )
        self._fallbacks = Counter(
            "certosa_provider_fallbacks_total", "Chats that went on to another provider.", ("provider",),
            registry=r,
        )  # fmt: skip
        self._breaker = Gauge(
            "certosa_provider_breaker", "1 for the state that a provider's breaker is in.",
            ("provider", "state"), registry=r,
        )  # fmt: skip
        self._providers: set[str] = set()
        self.use(providers)
        self._operations = Counter(
            "certosa_vault_operations_total", "Questions to the vault, by how they were answered.",
            ("operation", "outcome"), registry=r,
        )  # fmt: skip
        for operation in (*operations, "other"):
            for outcome in _VAULT_OUTCOMES:
                self._operations.labels(operation, outcome)
        self._known_operations = frozenset(operations)
        self._vault_s = Histogram(
            "certosa_vault_operation_seconds", "The vault's time for one question.",
            buckets=COMMIT_SECONDS, registry=r,
        )  # fmt: skip
        self._vault_waiting = Gauge("certosa_vault_waiting", "Questions before the vault.", registry=r)
        self.fetches = FetchMetrics(r)
        self._audit = Labelled(
            r, "certosa_audit_records_total", "What the audit log was told, by kind.", "kind",
            (*sorted(KINDS), "other"),
        )  # fmt: skip
        self._audit_lost = Counter("certosa_audit_lost_total", "Records that were not written.", registry=r)
        self._lag = LagMetrics(r, ("egress",))
        self.stores = StoreMetrics(r, ("ledger", "audit"))
        self.processes = ProcessMetrics(r)

    def use(self, providers: Iterable[str]) -> None:
        """These are configured from now on; what was counted of others stays."""
        for name in providers:
            if name in self._providers:
                continue
            self._providers.add(name)
            for outcome in OUTCOMES:
                self._requests.labels(name, outcome)
            for direction in ("input", "output"):
                self._tokens.labels(name, direction)
            for metric in (self._running, self._request_s, self._first_s, self._retries, self._fallbacks):
                metric.labels(name)
            self.breaker(name, "closed")

    def request_began(self, provider: str) -> None:
        """A request goes out."""
        self._running.labels(provider).inc()

    def request_ended(self, provider: str, outcome: str, seconds: float, request: str) -> None:
        """It ended: ``ok``, ``cancelled`` or a failure's code."""
        self._running.labels(provider).dec()
        known = outcome if outcome in OUTCOMES else "other"
        self._requests.labels(provider, known).inc()
        self._request_s.labels(provider).observe(seconds, exemplar(request))

    def request_answered(self, provider: str, seconds: float, request: str) -> None:
        """The first piece of its answer came."""
        self._first_s.labels(provider).observe(seconds, exemplar(request))

    def used(self, provider: str, input_tokens: int, output_tokens: int) -> None:
        """The ledger counted so many tokens."""
        self._tokens.labels(provider, "input").inc(input_tokens)
        self._tokens.labels(provider, "output").inc(output_tokens)

    def retried(self, provider: str) -> None:
        """A chat is tried again."""
        self._retries.labels(provider).inc()

    def fell_back(self, provider: str) -> None:
        """A chat goes on to another provider."""
        self._fallbacks.labels(provider).inc()

    def breaker(self, provider: str, state: str) -> None:
        """The state of a provider's breaker."""
        for one in _BREAKER_STATES:
            self._breaker.labels(provider, one).set(one == state)

    def vault_answered(self, operation: str, outcome: str, seconds: float, waiting: int) -> None:
        """The vault answered a question (``ok``, ``refused``, ``failed``); so many more wait."""
        known = operation if operation in self._known_operations else "other"
        self._operations.labels(known, outcome).inc()
        self._vault_s.observe(seconds)
        self._vault_waiting.set(waiting)

    def audited(self, kind: str) -> None:
        """The audit log was told of this."""
        self._audit.inc(kind)

    def audit_lost(self, count: int) -> None:
        """So many records were not written."""
        self._audit_lost.inc(count)

    def lagged(self, seconds: float) -> None:
        """Egress's loop ran that late."""
        self._lag.lagged("egress", seconds)
