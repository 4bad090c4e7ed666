"""The core process's composition root: makes every part, in order, and ends them in reverse.

    python -I APP/core/start.py --control FD --egress FD --hub FD --admin FD --admin-socket FD
                                --config FD --data-dir DIR [--apart]

The main thread runs the hub's event loop. Beside it run the edge, the storage threads and the
actors. The actors of this root are not restarted one by one: each of them stands for a socket or a
store that others hold, so a failure of one ends core, which the spawner starts again as a whole.
Exit status: 0 after Shutdown, 1 where a part failed for good or the spawner is gone.
"""

import argparse
import asyncio
import dataclasses
import itertools
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from actors.approvals import ApprovalRules
from actors.base import Actor, Exited, Ref, ask, tell
from actors.channel import Bounds
from actors.edge import Edge
from actors.fairness import PaceLimits
from actors.observer import Observer
from actors.restart import RestartPolicy
from actors.supervisor import ChildSpec, FindChild, Supervisor, stop_and_wait
from actors.user import UserActor
from core.accounts import CoreAccounts
from core.administration import CoreAdministration
from core.approvals import ApprovalDesk, Book
from core.audited import AuditedAdministration, CoreAuditor
from core.audited_credentials import AuditedConnector, AuditedKeeper
from core.config import Config
from core.credentials import ConnectDesk, CredentialDesk
from core.egress.messages import AskMetrics, MetricsTold
from core.egress.process import harden, read_config
from core.egress_link import EgressActor, EgressLink, LinkUp
from core.egress_rules import RuleDesk
from core.errors import ConfigError, CoreError
from core.families import Family
from core.hub.actor import HubActor
from core.hub.agents import Agents
from core.hub.server import HubParts, HubServer
from core.hub.tls import Tls, read_tls
from core.insight import CoreInsight
from core.lag import watch_timers
from core.limits import HomeBook, JailLimits
from core.log import configure_logging, set_level
from core.metrics import Metrics
from core.mounts import Mounts
from core.observer import CoreObserver
from core.policy import Policy
from core.pool.actor import Pool, PoolActor
from core.pool.jails import Budget, Keep
from core.sessions import Library, SessionsService, Storage
from core.sessions.actor import SessionsActor
from core.spawner_link import Heard, Host, SpawnerActor
from core.state_dump import StateDump
from core.turns import Turns
from core.turns import Users as UserActors
from core.users import NoSuchUser, Users
from core.vault.standing import Standings
from jail.host.messages import HostError, ToCore, receive_message

EXIT_OK, EXIT_FAILED, EXIT_CRASHED, EXIT_CONFIG = 0, 1, 70, 78
_ASK_S = 60.0  # all of the tree's start: the hub's and the databases' on a slow disk
# What jails get to drain after the last turn; then the spawner kills them.
_LEAVE_S = 12.0
_STOP_S = 60.0
_SWITCH_S = 0.001
"""Core's threads take turns at one interpreter, and each hop of a turn waits for this where somebody else's
actor has a frame that takes long to check: Python's own 5 ms, a dozen times a turn, would be noticed."""


class Sockets(NamedTuple):
    """What the spawner hands to core."""

    control: socket.socket
    egress: socket.socket
    hub: socket.socket
    admin: socket.socket
    command: socket.socket


class _Root(Actor):
    """Above the tree: its only message is the last word of it."""

    def __init__(self, observer: Observer, on_end: Callable[[Exited], None]) -> None:
        super().__init__("root", None, observer)
        self._on_end = on_end

    def handle(self, message: Any) -> None:
        """Pass it on."""
        if isinstance(message, Exited):
            self._on_end(message)


class Core:
    """Everything in the core process. Made on the running event loop.

    Args:
        apart: whether users have host uids of their own (the spawner is root).
        tls: open certificates and keys by flag; read and closed here.

    Raises ConfigError where they won't do.
    """

    def __init__(
        self, config: Config, data_dir: Path, apart: bool, sockets: Sockets, tls: Mapping[str, int]
    ) -> None:
        self._config = config
        self._apart = apart
        self._sockets = sockets
        self._loop = asyncio.get_running_loop()
        self._end: asyncio.Future[float | None] = self._loop.create_future()
        self._log = structlog.get_logger()
        self._metrics = metrics = Metrics()
        self._standings = Standings()
        self._turns = Turns()
        self._link = EgressLink(self._standings, self._turns, metrics.limit_met, metrics.ask_timed_out)
        self._auditor = CoreAuditor(self._link)
        self._observer: Observer = CoreObserver(metrics, self._auditor.jail_killed)
        self._policy = Policy(config.verbs)
        self._lives = itertools.count(1)
        self._edge = Edge("edge", _crash)
        metrics.watch_edge(self._edge.totals)
        self._table = Users(data_dir / "_system" / "core.db", config.jail.uid_base)
        bounds = config.sessions
        self._storage = Storage(
            data_dir / "sealed",
            bounds.storage_threads,
            bounds.keep_days,
            metrics.stores,
            metrics.ask_timed_out,
        )
        self._sessions = SessionsService(self._storage, config.sessions)
        self._book = Book(self._storage, metrics)
        self._host = Host(self._host_uid, metrics.ask_timed_out)
        self._pool = Pool(metrics.ask_timed_out)
        self._limits = JailLimits(config.jail)
        self._mounts = Mounts(config.vault)
        self._homes = HomeBook(self._limits)
        self._agents = Agents(data_dir / "users", config)
        self._tls = {name: _tls(name, tls) for name in ("hub", "admin")}
        self._dump: StateDump | None = None
        self._dump_path = data_dir / "_system" / "dump-core.txt"
        self._hub = HubServer(
            HubParts(
                config=config.hub,
                live=config.live,
                verifier=self._link,
                turns=self._turns,
                calls=self._turns,
                sessions=self._sessions,
                library=Library(self._storage, self._sessions),
                approvals=ApprovalDesk(self._storage, self._turns),
                held_s=config.approvals.held_s,
                agents=self._agents,
                metrics=metrics,
                administration=AuditedAdministration(self._administration(), self._auditor),
                accounts=CoreAccounts(self._link, self._table, self._auditor),
                login_failed=self._auditor.login_failed,
                credentials=AuditedKeeper(CredentialDesk(self._link, self._on_credential), self._auditor),
                mounts=self._mounts,
                connector=AuditedConnector(ConnectDesk(self._link), self._auditor),
                reporter=self._auditor,
                egress=RuleDesk(self._link, self._table, self._auditor, lambda: self._config.egress),
                insight=self._insight(data_dir),
                missing=self._missing,
                admin=config.admin,
                access=config.access,
                free_bytes=lambda: _free_bytes(data_dir),
                others_metrics={
                    "egress": self._egress_metrics,
                    "spawner": self._spawner_metrics,
                    "pool": self._pool_metrics,
                },
                home_excess=self._homes.excess,
                hub_tls=self._tls["hub"],
                admin_tls=self._tls["admin"],
            )
        )
        self._root: Ref | None = None
        self._tree: Ref | None = None
        self._egress: Ref | None = None

    async def run(self) -> int:
        """Serve until told to stop; returns the exit status."""
        self._edge.start()
        watch_timers(self._edge, partial(self._metrics.lagged, "edge"))
        self._root = _Root.start(self._observer, self._on_tree_end)
        self._dump = StateDump(self._dump_path, self._state)
        await asyncio.to_thread(self._grow)
        self._loop.add_reader(self._sockets.control.fileno(), self._on_control)
        self._host.say_ready()
        self._log.info("core_started", users_apart=self._apart)
        grace_s = await self._end
        if grace_s is not None:
            await self._hub.stop(grace_s)
            if not await self._turns.leave_all(_LEAVE_S):
                self._log.warning("jails_left_at_stop")
        self._loop.remove_reader(self._sockets.control.fileno())
        await asyncio.to_thread(self._fell)
        self._dump.close()
        self._log.info("core_stopped", orderly=grace_s is not None)
        return EXIT_OK if grace_s is not None else EXIT_FAILED

    # -- the tree ----------------------------------------------------------------------------------

    def _grow(self) -> None:
        """Start the actors, inner first; not on the loop's thread, which the hub's start needs."""
        once = RestartPolicy(most=0)
        specs = (
            ChildSpec("egress", self._start_egress),
            ChildSpec("spawner", self._start_spawner),
            ChildSpec("pool", self._start_pool),
            ChildSpec("sessions", self._start_sessions),
            ChildSpec("users", self._start_users),
            ChildSpec("hub", self._start_hub),
        )
        self._tree = Supervisor.start("core", self._root, self._observer, self._edge, specs, once)
        self._child("hub")  # it was made last, so all of them were

    def _child(self, name: str) -> Ref:
        found: Any = ask(self._tree, FindChild(name), _ASK_S) if self._tree is not None else None
        if found is None:
            raise CoreError(f"core's {name} ended at its start; the log says why")
        ref: Ref = found
        return ref

    def _fell(self) -> None:
        """End the actors, outer first, then what they stood on."""
        for ref in (self._tree, self._root):
            if ref is not None and ref.is_alive():
                stop_and_wait(ref, _STOP_S)
        self._edge.stop()
        self._storage.stop()
        self._table.close()

    def _start_egress(self, name: str, parent: Ref) -> Ref:
        ref = EgressActor.start(name, parent, self._observer, edge=self._edge, link=self._link)
        ref.tell(LinkUp(self._sockets.egress))
        self._egress = ref
        return ref

    def _start_spawner(self, name: str, parent: Ref) -> Ref:
        ref = SpawnerActor.start(
            name,
            parent,
            self._observer,
            sock=self._sockets.control,
            timers=self._edge,
            on_link=self._on_link,
            on_started=self._pool.started,
            on_spawned=self._metrics.jail_spawned,
            on_ended=self._pool.ended,
            on_measured=self._pool.measured,
            on_home=self._homes.note,
            on_limit=self._metrics.jail_limited,
            on_shutdown=self._on_shutdown,
            on_reload=self._on_reload,
        )
        self._host.connect(ref)
        return ref

    def _start_pool(self, name: str, parent: Ref) -> Ref:
        ref = PoolActor.start(
            name,
            parent,
            self._observer,
            budget=_budget(self._config),
            builder=self._host,
            timers=self._edge,
            lag_s=lambda: self._hub.admission.lag_s,
            metrics=self._metrics.pool,
        )
        self._pool.connect(ref)
        return ref

    def _start_sessions(self, name: str, parent: Ref) -> Ref:
        return SessionsActor.start(name, parent, self._observer, storage=self._storage)

    def _start_users(self, name: str, parent: Ref) -> Ref:
        ref = UserActors.start(name, parent, self._observer, self._edge, self._start_user)
        self._turns.connect(ref)  # before the hub, whose first request may come at once
        return ref

    def _start_hub(self, name: str, parent: Ref) -> Ref:
        sockets = self._sockets

        async def start() -> None:
            await self._hub.start([sockets.hub], [sockets.admin], [sockets.command])

        async def stop() -> None:
            await self._hub.stop(0)

        return HubActor.start(name, parent, self._observer, loop=self._loop, start=start, stop=stop)

    def _start_user(self, name: str, user: str, parent: Ref, observer: Observer) -> Ref:
        services = {
            "provider.chat": self._link,
            **dict.fromkeys(("http.fetch", "http.body"), self._link.fetches),
            **dict.fromkeys(("session.load", "session.append", "step.begin", "step.end"), self._sessions),
        }
        return UserActor.start(
            name,
            parent,
            observer,
            user=user,
            edge=self._edge,
            bounds=lambda: _bounds(self._config),
            jails=self._pool,
            services=services,
            mode=self._policy.mode,
            book=self._book,
            rules=_rules(self._config),
            next_life=lambda: next(self._lives),
            start_timeout_s=self._config.pool.wait_s + self._config.jail.start_timeout_s,
        )

    # -- what parts ask of the whole ------------------------------------------------------------------

    def _administration(self) -> CoreAdministration:
        return CoreAdministration(
            users=self._table,
            standings=self._standings,
            link=self._link,
            host=self._host,
            turns=self._turns,
            storage=self._storage,
            apart=self._apart,
            cut_off=lambda user: self._hub.cut_off(user),  # noqa: PLW0108 - made later
            recheck_tokens=lambda: self._hub.recheck_tokens(),  # noqa: PLW0108
            pool=self._pool,
            forget_home=self._homes.forget,
        )

    def _insight(self, data_dir: Path) -> CoreInsight:
        return CoreInsight(
            config=lambda: self._config,
            data_dir=data_dir,
            users=self._table,
            link=self._link,
            pool=self._pool,
            served=self._edge.served,
            missing=self._missing,
            admission=lambda: self._hub.admission,
        )

    async def _egress_metrics(self) -> tuple[Family, ...]:
        told: MetricsTold = await self._link.ask(AskMetrics)
        return told.families

    async def _spawner_metrics(self) -> tuple[Family, ...]:
        told = await self._host.use()
        self._metrics.processes.show("spawner", told.use)
        self._metrics.spawner.show(told.events)
        return ()

    async def _pool_metrics(self) -> tuple[Family, ...]:
        self._metrics.pool.show(await self._pool.watch())
        return ()

    def _on_credential(self, owner: str, name: str) -> None:
        """One may be another by now: what lies in a jail as a file must not stay there."""
        if name in self._mounts(owner):
            self._pool.renew(owner)

    def _missing(self) -> list[str]:
        return [] if self._link.up else ["egress"]

    def _host_uid(self, user: str) -> int:
        """A user's host uid; 0, which the spawner refuses when it is root, for one who isn't there."""
        try:
            return self._table.get(user).host_uid if self._apart else 0
        except NoSuchUser:
            return 0

    # -- the spawner, on the loop ----------------------------------------------------------------------

    def _on_control(self) -> None:
        try:
            received = receive_message(self._sockets.control, ToCore)
        except (BlockingIOError, InterruptedError):
            return
        except (OSError, HostError) as error:
            self._log.error("control_failed", error=str(error))
            received = None
        if received is None:
            self._loop.remove_reader(self._sockets.control.fileno())
            self._finish(None)
        else:
            self._host.hear(Heard(*received))

    def _on_link(self, link: LinkUp) -> None:
        if self._egress is None or not tell(self._egress, link):
            link.sock.close()

    def _on_reload(self, handed: dict[str, int]) -> None:
        """On the spawner actor's thread."""
        self._loop.call_soon_threadsafe(self._reload, handed)

    def _reload(self, handed: dict[str, int]) -> None:
        """Use another configuration; the spawner has seen to it that all of it will do."""
        try:
            config = read_config(handed.pop("config"))
            for name, tls in self._tls.items():
                files = {
                    key: handed.pop(key) for key in (f"{name}-certificate", f"{name}-key") if key in handed
                }
                if tls is not None and files:
                    tls.replace(read_tls(name, files))
        except (ConfigError, KeyError) as error:
            self._log.error("config_not_used", reason=str(error))
            return
        finally:
            for fd in handed.values():
                os.close(fd)
        self._config = config
        set_level(config.server.log_level)
        self._policy.apply(config.verbs)
        self._agents.apply(config)
        self._hub.apply(config.hub, config.access)
        self._pool.apply(_budget(config))
        self._limits.use(config.jail)
        for user in self._mounts.use(config.vault):
            self._pool.renew(user)
        self._log.info("config_used")

    async def _state(self) -> dict[str, Any]:
        """What an operator reads beside the stacks."""
        return {
            "pool": dataclasses.asdict(await self._pool.describe()),
            "turns": self._hub.describe(),
            "egress": self._link.describe(),
            "edge": {user: served._asdict() for user, served in self._edge.served().items()},
            "loop_lag_s": self._hub.admission.lag_s,
        }

    def _on_shutdown(self, grace_s: float) -> None:
        self._loop.call_soon_threadsafe(self._finish, grace_s)

    def _on_tree_end(self, exited: Exited) -> None:
        if exited.error is not None:
            self._loop.call_soon_threadsafe(self._finish, None)

    def _finish(self, grace_s: float | None) -> None:
        if not self._end.done():
            self._end.set_result(grace_s)


def main(argv: Sequence[str] | None = None) -> int:
    """Run core until it is told to stop; returns the exit status."""
    arguments = _parser().parse_args(argv)
    os.umask(0o077)
    harden()
    sys.setswitchinterval(_SWITCH_S)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # until there is something to dump
    config = read_config(arguments.config)
    configure_logging(config.server.log_level, config.server.log_format, "core")
    if config.server.core_cpus == "one":
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # before there are other threads
    sockets = Sockets(
        *(
            socket.socket(fileno=fd)
            for fd in (
                arguments.control,
                arguments.egress,
                arguments.hub,
                arguments.admin,
                arguments.admin_socket,
            )
        )
    )
    for sock in sockets:
        sock.setblocking(False)
    tls = {
        name: fd
        for name in ("hub-certificate", "hub-key", "admin-certificate", "admin-key")
        if (fd := getattr(arguments, name.replace("-", "_"))) is not None
    }
    return asyncio.run(_run(config, arguments.data_dir, arguments.apart, sockets, tls))


async def _run(config: Config, data_dir: Path, apart: bool, sockets: Sockets, tls: Mapping[str, int]) -> int:
    try:
        return await Core(config, data_dir, apart, sockets, tls).run()
    except ConfigError as error:
        structlog.get_logger().error("core_start_failed", reason=str(error))
        return EXIT_CONFIG
    except CoreError as error:
        structlog.get_logger().error("core_start_failed", reason=str(error))
        return EXIT_FAILED
    finally:
        for sock in sockets:
            sock.close()


def _rules(config: Config) -> ApprovalRules:
    section = config.approvals
    return ApprovalRules(section.expires_s, section.max_open, section.held_s)


def _bounds(config: Config) -> Bounds:
    edge = config.edge
    return Bounds(
        unacked=edge.waiting_frames,
        unacked_bytes=edge.waiting_bytes,
        backlog_bytes=edge.backlog_bytes,
        pace=PaceLimits(edge.frames_per_s, edge.burst, edge.patience_s),
    )


def _budget(config: Config) -> Budget:
    pool = config.pool
    return Budget(
        jails=pool.max_jails,
        starting=config.starting_at_once(config.jail.start),
        memory_bytes=pool.memory_bytes,
        free_bytes=pool.free_bytes,
        idle_s=pool.idle_s,
        queue=pool.max_waiting,
        queue_s=pool.wait_s,
        users={user: Keep(keep.idle_s, keep.keep) for user, keep in pool.users.items()},
    )


def _free_bytes(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def _tls(name: str, fds: Mapping[str, int]) -> Tls | None:
    """A listener's TLS from open files; ConfigError."""
    if f"{name}-key" not in fds:
        return None
    return Tls(name, read_tls(name, fds))


def _crash(error: BaseException) -> None:
    """A bug on the edge's thread: nothing can go on without it. The spawner starts core again."""
    structlog.get_logger().critical("edge_crashed", trace="".join(traceback.format_exception(error)))
    os._exit(EXIT_CRASHED)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="core", description=__doc__, allow_abbrev=False)
    for flag in ("--control", "--egress", "--hub", "--admin", "--admin-socket", "--config"):
        parser.add_argument(flag, type=int, required=True, metavar="FD")
    for flag in ("--hub-certificate", "--hub-key", "--admin-certificate", "--admin-key"):
        parser.add_argument(flag, type=int, metavar="FD")
    parser.add_argument("--data-dir", type=Path, required=True, metavar="DIR")
    parser.add_argument("--apart", action="store_true", help="users have host uids of their own")
    return parser
