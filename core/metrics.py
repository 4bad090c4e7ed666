"""Every metric of Certosa's, declared here and nowhere else.

Names are ``certosa_<noun>_<unit>`` in base units, counters end in ``_total``. A label's values come
from a closed set and are created at the start, so a rate is right from the first event on; what is
not in the set counts as ``other``. A user's id is never a label. Everything here is thread-safe.

Core has :class:`Metrics`, egress :class:`EgressMetrics`; core's ``/metrics`` answers with both, and with
what the spawner says of itself (core/exposition.py). Where a metric was observed for one request, its
id goes along as an exemplar.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeHistogramMetricFamily, GaugeMetricFamily, Metric

from actors.asking import Resolution
from core.audit.records import KINDS
from core.ledger.metering import Dimension, Level
from core.pool.jails import PoolNow, State, Why, WhyNot
from jail.host.measure import ProcessUse
from jail.host.messages import SPAWNER_EVENTS, Start
from jail.wire.errors import FaultReason
from jail.wire.frames import Kind
from jail.wire.schema import ErrorCode, Failure, TurnEnd

_FINISHES = ("stop", "length", "rounds", "repeats", "failing", "wall", "content_filter")
_STATUSES = ("2xx", "3xx", "4xx", "5xx")
_JAIL_ENDS = ("drained", "ended", "fault", "cancel", "stop", "start", "other")
_ACTORS = ("user", "users", "supervisor", "spawner", "egress", "pool", "sessions", "hub", "other")

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_TURN_SECONDS = (0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3_600)
_HANDLE_SECONDS = (0.00001, 0.00005, 0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.25, 1)
_DEPTHS = (0, 1, 2, 5, 10, 25, 50, 100, 250, 1_000)
_COMMIT_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
_SPAWN_SECONDS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 2.5, 10)
_CHAT_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640)
JAIL_BYTES = tuple(mb << 20 for mb in (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1_024))
"""Upper bounds for the memory of one jail; the last is that of no bound."""

_ASKED = ("egress", "spawner", "pool", "store", "other")
_PROCESSES = ("core", "egress", "spawner")
_DIRECTIONS = ("in", "out")

Loop = Literal["hub", "edge", "egress"]

_PROVIDER_OUTCOMES = ("ok", *get_args(ErrorCode), "other")
_BREAKER_STATES = ("closed", "open", "half_open")
_VAULT_OUTCOMES = ("ok", "refused", "failed")


class Metrics:
    """Core's metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = r = CollectorRegistry()
        self._turns_started = Counter("certosa_turns_started_total", "Turns started.", registry=r)
        self._turns_ended = _Labelled(
            r, "certosa_turns_ended_total", "Turns ended, by how.", "outcome",
            (*_FINISHES, *get_args(ErrorCode), "other"),
        )  # fmt: skip
        self._turns_refused = _Labelled(
            r, "certosa_turns_refused_total", "Turns not started, by why.", "reason",
            ("server_turns", "user_turns", "loop_lag", "stopping", "disk_full", "session_busy", "other"),
        )  # fmt: skip
        self._turns_running = Gauge("certosa_turns_running", "Turns running now.", registry=r)
        self._turn_s = Histogram(
            "certosa_turn_seconds", "From the request to the turn's end.",
            buckets=_TURN_SECONDS, registry=r,
        )  # fmt: skip
        self._first_token_s = Histogram(
            "certosa_first_token_seconds", "From the request to the answer's first piece.",
            buckets=_SECONDS, registry=r,
        )  # fmt: skip
        self._http = Counter(
            "certosa_http_requests_total", "HTTP requests answered.", ("route", "status"), registry=r
        )
        self._routes = (
            "chat",
            "messages",
            "ws",
            "models",
            "files",
            "sessions",
            "agents",
            "approvals",
            "usage",
            "health",
            "metrics",
            "admin",
            "other",
        )
        for route in self._routes:
            for status in _STATUSES:
                self._http.labels(route, status)
        self._streams_open = Gauge(
            "certosa_streams_open", "Connections that watch sessions now.", ("kind",), registry=r
        )
        for kind in ("websocket", "sse"):
            self._streams_open.labels(kind)
        self._events_sent = Counter(
            "certosa_events_sent_total", "Sessions' events handed to connections that watch.", registry=r
        )
        self.pool = PoolMetrics(r)
        self._jail_start_s = Histogram(
            "certosa_jail_start_seconds", "From asking for a jail to its worker's first frame.",
            buckets=_SECONDS, registry=r,
        )  # fmt: skip
        self._jails_ended = _Labelled(
            r, "certosa_jails_ended_total", "Jails ended, by why.", "reason", _JAIL_ENDS
        )
        self._edge_faults = _Labelled(
            r, "certosa_edge_faults_total", "Jails that broke the protocol, by how.", "reason",
            (*get_args(FaultReason), "other"),
        )  # fmt: skip
        self._limits_met = _Labelled(
            r, "certosa_usage_soft_limits_total", "Soft limits reached, by of what.", "dimension",
            (*get_args(Dimension), "other"),
        )  # fmt: skip
        self._usage_refused = _Labelled(
            r, "certosa_usage_refused_total", "Refused at a hard limit, by of what.", "dimension",
            (*get_args(Dimension), "other"),
        )  # fmt: skip
        self._approvals = _Labelled(
            r, "certosa_approvals_total", "Questions to users that were decided, by how.", "outcome",
            (*get_args(Resolution), "other"),
        )  # fmt: skip
        self._restarts = _Labelled(
            r, "certosa_restarts_total", "Children that a supervisor restarted.", "actor", ("other",)
        )
        self._handle_s = Histogram(
            "certosa_actor_handle_seconds", "An actor's time for one message.", ("actor",),
            buckets=_HANDLE_SECONDS, registry=r,
        )  # fmt: skip
        self._mailbox = Histogram(
            "certosa_actor_mailbox_messages", "Messages waiting behind the one handled.", ("actor",),
            buckets=_DEPTHS, registry=r,
        )  # fmt: skip
        # looked up once: this is observed with every message, and the lookup costs more than the rest
        self._handled = {
            actor: (self._handle_s.labels(actor), self._mailbox.labels(actor)) for actor in _ACTORS
        }
        self._lag = LagMetrics(r, ("hub", "edge"))
        self._ask_timeouts = _Labelled(
            r, "certosa_ask_timeouts_total", "Questions that were not answered in time, by whom.", "asked",
            _ASKED,
        )  # fmt: skip
        self._frames = Counter(
            "certosa_edge_frames_total", "Frames to and from jails.", ("direction", "kind"), registry=r
        )
        self._frame_bytes = Counter(
            "certosa_edge_bytes_total", "Bytes of those frames.", ("direction", "kind"), registry=r
        )
        kinds = (*(kind.name.lower() for kind in Kind), "other")
        self._framed = {
            (way, kind): (self._frames.labels(way, kind), self._frame_bytes.labels(way, kind))
            for way in _DIRECTIONS
            for kind in kinds
        }
        self._jail_spawn_s = Histogram(
            "certosa_jail_spawn_seconds", "A jail's building by the spawner, by how it is started.",
            ("start",), buckets=_SPAWN_SECONDS, registry=r,
        )  # fmt: skip
        self._spawned = {start: self._jail_spawn_s.labels(start) for start in get_args(Start)}
        self._turns_limit = Gauge("certosa_turns_limit", "Turns that may run at once.", registry=r)
        self._disk_free = Gauge(
            "certosa_disk_free_bytes", "Free on the data directory's file system.", registry=r
        )
        self._disk_needed = Gauge(
            "certosa_disk_needed_bytes", "Free bytes below which no new turn begins.", registry=r
        )
        self._up = Gauge(
            "certosa_process_up", "Whether a trusted process answered this scrape.", ("process",), registry=r
        )
        for process in _PROCESSES:
            self._up.labels(process)
        self.stores = StoreMetrics(r, ("sessions",))
        self.processes = ProcessMetrics(r)
        self.spawner = SpawnerMetrics(r)

    # -- the hub ----------------------------------------------------------------------------------

    def turn_started(self) -> None:
        """A turn was handed to its user's actor."""
        self._turns_started.inc()
        self._turns_running.inc()

    def turn_ended(self, outcome: TurnEnd | Failure, turn_s: float, request: str = "") -> None:
        """A started turn ended, that long after its request."""
        self._turns_running.dec()
        self._turns_ended.inc(outcome.code if isinstance(outcome, Failure) else outcome.finish)
        self._turn_s.observe(turn_s, _exemplar(request))

    def turn_refused(self, reason: str) -> None:
        """A turn was not started: server_turns, user_turns, loop_lag, stopping, session_busy."""
        self._turns_refused.inc(reason)

    def first_token(self, seconds: float, request: str = "") -> None:
        """A client was given the first piece of its answer, that long after its request."""
        self._first_token_s.observe(seconds, _exemplar(request))

    def http_answered(self, route: str, status: int) -> None:
        """A request was answered; ``route`` is a route's name, never a path."""
        known = route if route in self._routes else "other"
        self._http.labels(known, f"{min(max(status // 100, 2), 5)}xx").inc()

    def stream_opened(self, kind: Literal["websocket", "sse"]) -> None:
        """A connection that watches began."""
        self._streams_open.labels(kind).inc()

    def stream_closed(self, kind: Literal["websocket", "sse"]) -> None:
        """It ended."""
        self._streams_open.labels(kind).dec()

    def events_sent(self, count: int) -> None:
        """So many events were handed to one connection."""
        self._events_sent.inc(count)

    def lagged(self, loop: Loop, seconds: float) -> None:
        """The hub's event loop or the edge ran that late."""
        self._lag.lagged(loop, seconds)

    def ask_timed_out(self, asked: str) -> None:
        """Egress, the spawner, the pool or the store did not answer in time."""
        self._ask_timeouts.inc(asked)

    def turns_limited(self, most: int) -> None:
        """So many turns may run at once."""
        self._turns_limit.set(most)

    def disk(self, free_bytes: int, needed_bytes: int) -> None:
        """What the disk has, and has to have."""
        self._disk_free.set(free_bytes)
        self._disk_needed.set(needed_bytes)

    def process_up(self, process: str, up: bool) -> None:
        """Whether a process of ours answered."""
        self._up.labels(process).set(up)

    def approval_resolved(self, outcome: Resolution) -> None:
        """A question to a user was decided."""
        self._approvals.inc(outcome)

    def limit_met(self, level: Level, dimension: Dimension) -> None:
        """A user reached a limit of their day's; a hard one refused a request."""
        (self._limits_met if level == "soft" else self._usage_refused).inc(dimension)

    # -- the middle floor (see actors.observer) -----------------------------------------------------

    def handled(self, actor: str, seconds: float, mailbox: int) -> None:
        """An actor of this kind handled a message; that many were waiting behind it."""
        handle_s, waiting = self._handled.get(actor) or self._handled["other"]
        handle_s.observe(seconds)
        waiting.observe(mailbox)

    def frame(self, direction: Literal["in", "out"], kind: str, size: int) -> None:
        """A frame of so many bytes came from a jail or went to it."""
        frames, size_bytes = self._framed.get((direction, kind)) or self._framed[direction, "other"]
        frames.inc()
        size_bytes.inc(size)

    def jail_spawned(self, spawn_s: float, start: Start) -> None:
        """The spawner built a jail in that time."""
        self._spawned[start].observe(spawn_s)

    def jail_started(self, start_s: float) -> None:
        """A jail's worker said HELLO that long after it was asked for."""
        self._jail_start_s.observe(start_s)

    def jail_ended(self, reason: str) -> None:
        """A jail ended: drained, fault_REASON, or one word for how."""
        self._jails_ended.inc("fault" if reason.startswith("fault_") else reason)

    def peer_faulted(self, reason: str) -> None:
        """A jail broke the protocol."""
        self._edge_faults.inc(reason)

    def restarted(self, actor: str) -> None:
        """A supervisor restarted a child of this kind."""
        self._restarts.inc(actor)


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
        self._evictions = _Labelled(
            registry, "certosa_pool_evictions_total", "Jails given up, by why.", "reason",
            (*get_args(Why), "other"),
        )  # fmt: skip
        self._refused = _Labelled(
            registry, "certosa_pool_refused_total", "Jails that were wanted and not started, by why.",
            "reason", (*get_args(WhyNot), "other"),
        )  # fmt: skip
        self._wait_s = Histogram(
            "certosa_pool_wait_seconds", "What a jail waited for room before its start.",
            buckets=_SECONDS, registry=registry,
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


class LagMetrics:
    """How late loops run, looked at a few times a second."""

    def __init__(self, registry: CollectorRegistry, loops: Sequence[Loop]) -> None:
        lag_s = Histogram(
            "certosa_loop_lag_seconds", "How late a loop runs, by which.", ("loop",),
            buckets=_SECONDS, registry=registry,
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
            ("store",), buckets=_COMMIT_SECONDS, registry=registry,
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
            buckets=_CHAT_SECONDS, registry=r,
        )  # fmt: skip
        self._first_s = Histogram(
            "certosa_provider_first_token_seconds", "From a request's begin to the answer's first piece.",
            ("provider",), buckets=_CHAT_SECONDS, registry=r,
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
            buckets=_COMMIT_SECONDS, registry=r,
        )  # fmt: skip
        self._vault_waiting = Gauge("certosa_vault_waiting", "Questions before the vault.", registry=r)
        self._audit = _Labelled(
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
            for outcome in _PROVIDER_OUTCOMES:
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
        known = outcome if outcome in _PROVIDER_OUTCOMES else "other"
        self._requests.labels(provider, known).inc()
        self._request_s.labels(provider).observe(seconds, _exemplar(request))

    def request_answered(self, provider: str, seconds: float, request: str) -> None:
        """The first piece of its answer came."""
        self._first_s.labels(provider).observe(seconds, _exemplar(request))

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


def _exemplar(request: str) -> dict[str, str] | None:
    return {"request_id": request} if request else None


class _Labelled:
    """A counter with one label of a closed set, ``other`` among it."""

    def __init__(
        self, registry: CollectorRegistry, name: str, text: str, label: str, values: Sequence[str]
    ) -> None:
        counter = Counter(name, text, (label,), registry=registry)
        self._children = {value: counter.labels(value) for value in values}

    def inc(self, value: str) -> None:
        self._children.get(value, self._children["other"]).inc()
