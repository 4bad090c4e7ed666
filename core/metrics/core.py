"""Core's metrics: turns, the API, actors, the edge, jails, the disk."""

from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from actors.asking import Resolution
from core.ledger.metering import Dimension, Level
from core.metrics.base import SECONDS, Labelled, exemplar
from core.metrics.pool import PoolMetrics
from core.metrics.processes import LagMetrics, Loop, ProcessMetrics, SpawnerMetrics, StoreMetrics
from jail.host.messages import LimitMet, Start
from jail.wire.errors import FaultReason
from jail.wire.frames import Kind
from jail.wire.schema import ErrorCode, Failure, TurnEnd

_FINISHES = ("stop", "length", "rounds", "repeats", "failing", "wall", "content_filter")
_STATUSES = ("2xx", "3xx", "4xx", "5xx")
_JAIL_ENDS = ("drained", "ended", "fault", "limit", "cancel", "stop", "start", "other")
_ACTORS = ("user", "users", "supervisor", "spawner", "egress", "pool", "sessions", "hub", "other")
_TURN_SECONDS = (0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3_600)
_HANDLE_SECONDS = (0.00001, 0.00005, 0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.25, 1)
_DEPTHS = (0, 1, 2, 5, 10, 25, 50, 100, 250, 1_000)
_SPAWN_SECONDS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 2.5, 10)
_ASKED = ("egress", "spawner", "pool", "store", "other")
_PROCESSES = ("core", "egress", "spawner")
_DIRECTIONS = ("in", "out")


class Metrics:
    """Core's metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = r = CollectorRegistry()
        self._turns_started = Counter("certosa_turns_started_total", "Turns started.", registry=r)
        self._turns_ended = Labelled(
            r, "certosa_turns_ended_total", "Turns ended, by how.", "outcome",
            (*_FINISHES, *get_args(ErrorCode), "other"),
        )  # fmt: skip
        self._turns_refused = Labelled(
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
            buckets=SECONDS, registry=r,
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
            buckets=SECONDS, registry=r,
        )  # fmt: skip
        self._jails_ended = Labelled(
            r, "certosa_jails_ended_total", "Jails ended, by why.", "reason", _JAIL_ENDS
        )
        self._limits_ended = Labelled(
            r, "certosa_jail_limits_total", "Jails ended by a limit, by which.", "limit",
            (*filter(None, get_args(LimitMet)), "other"),
        )  # fmt: skip
        self._edge_faults = Labelled(
            r, "certosa_edge_faults_total", "Jails that broke the protocol, by how.", "reason",
            (*get_args(FaultReason), "other"),
        )  # fmt: skip
        self._limits_met = Labelled(
            r, "certosa_usage_soft_limits_total", "Soft limits reached, by of what.", "dimension",
            (*get_args(Dimension), "other"),
        )  # fmt: skip
        self._usage_refused = Labelled(
            r, "certosa_usage_refused_total", "Refused at a hard limit, by of what.", "dimension",
            (*get_args(Dimension), "other"),
        )  # fmt: skip
        self._approvals = Labelled(
            r, "certosa_approvals_total", "Questions to users that were decided, by how.", "outcome",
            (*get_args(Resolution), "other"),
        )  # fmt: skip
        self._logins_failed = Labelled(
            r, "certosa_logins_failed_total",
            "Tokens refused: wrong ones, and any of an address that has to wait for that.", "reason",
            ("wrong", "waiting", "other"),
        )  # fmt: skip
        self._restarts = Labelled(
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
        self._ask_timeouts = Labelled(
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
        self._turn_s.observe(turn_s, exemplar(request))

    def turn_refused(self, reason: str) -> None:
        """A turn was not started: server_turns, user_turns, loop_lag, stopping, session_busy."""
        self._turns_refused.inc(reason)

    def first_token(self, seconds: float, request: str = "") -> None:
        """A client was given the first piece of its answer, that long after its request."""
        self._first_token_s.observe(seconds, exemplar(request))

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

    def login_failed(self, reason: Literal["wrong", "waiting"]) -> None:
        """A token was wrong, or was not looked at because too many of its address were."""
        self._logins_failed.inc(reason)

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
