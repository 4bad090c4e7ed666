"""Every metric of Certosa's, declared here and nowhere else.

Names are ``certosa_<noun>_<unit>`` in base units, counters end in ``_total``. A label's values come
from a closed set and are created at the start, so a rate is right from the first event on; what is
not in the set counts as ``other``. A user's id is never a label. Everything here is thread-safe.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from actors.asking import Resolution
from core.ledger.metering import Dimension, Level
from core.pool.jails import State, Why, WhyNot
from jail.host.messages import LimitMet
from jail.wire.errors import FaultReason
from jail.wire.schema import ErrorCode, Failure, TurnEnd

_FINISHES = ("stop", "length", "rounds", "repeats", "failing", "wall", "content_filter")
_STATUSES = ("2xx", "3xx", "4xx", "5xx")
_JAIL_ENDS = ("drained", "ended", "fault", "limit", "cancel", "stop", "start", "other")
_ACTORS = ("user", "users", "supervisor", "spawner", "egress", "pool", "sessions", "hub", "other")

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_TURN_SECONDS = (0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3_600)
_HANDLE_SECONDS = (0.00001, 0.00005, 0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.25, 1)
_DEPTHS = (0, 1, 2, 5, 10, 25, 50, 100, 250, 1_000)


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
            ("server_turns", "user_turns", "loop_lag", "stopping", "disk_full", "disk_quota",
             "session_busy", "other"),
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
        self._limits_ended = _Labelled(
            r, "certosa_jail_limits_total", "Jails ended by a limit, by which.", "limit",
            (*filter(None, get_args(LimitMet)), "other"),
        )  # fmt: skip
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
        self._loop_lag_s = Gauge(
            "certosa_loop_lag_seconds", "How late the hub's event loop runs.", registry=r
        )

    # -- the hub ----------------------------------------------------------------------------------

    def turn_started(self) -> None:
        """A turn was handed to its user's actor."""
        self._turns_started.inc()
        self._turns_running.inc()

    def turn_ended(self, outcome: TurnEnd | Failure, turn_s: float) -> None:
        """A started turn ended, that long after its request."""
        self._turns_running.dec()
        self._turns_ended.inc(outcome.code if isinstance(outcome, Failure) else outcome.finish)
        self._turn_s.observe(turn_s)

    def turn_refused(self, reason: str) -> None:
        """A turn was not started: server_turns, user_turns, loop_lag, stopping, session_busy."""
        self._turns_refused.inc(reason)

    def first_token(self, seconds: float) -> None:
        """A client was given the first piece of its answer, that long after its request."""
        self._first_token_s.observe(seconds)

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

    def loop_lag(self, seconds: float) -> None:
        """The hub's loop ran that late."""
        self._loop_lag_s.set(seconds)

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

    def jail_started(self, start_s: float) -> None:
        """A jail's worker said HELLO that long after it was asked for."""
        self._jail_start_s.observe(start_s)

    def jail_ended(self, reason: str) -> None:
        """A jail ended: drained, fault_REASON, or one word for how."""
        self._jails_ended.inc("fault" if reason.startswith("fault_") else reason)

    def jail_limited(self, met: LimitMet) -> None:
        """A jail was ended by this limit; nothing is counted for "", by none."""
        if met:
            self._limits_ended.inc(met)

    def peer_faulted(self, reason: str) -> None:
        """A jail broke the protocol."""
        self._edge_faults.inc(reason)

    def restarted(self, actor: str) -> None:
        """A supervisor restarted a child of this kind."""
        self._restarts.inc(actor)


class PoolMetrics:
    """The pool's part; its methods are called by the pool's actor."""

    def __init__(self, registry: CollectorRegistry) -> None:
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

    def evicted(self, why: Why) -> None:
        """An idle jail was given up."""
        self._evictions.inc(why)

    def refused(self, why: WhyNot) -> None:
        """A jail was wanted and not started."""
        self._refused.inc(why)

    def waited(self, seconds: float) -> None:
        """A jail is started, that long after it was wanted."""
        self._wait_s.observe(seconds)


class _Labelled:
    """A counter with one label of a closed set, ``other`` among it."""

    def __init__(
        self, registry: CollectorRegistry, name: str, text: str, label: str, values: Sequence[str]
    ) -> None:
        counter = Counter(name, text, (label,), registry=registry)
        self._children = {value: counter.labels(value) for value in values}

    def inc(self, value: str) -> None:
        self._children.get(value, self._children["other"]).inc()
