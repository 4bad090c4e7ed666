"""The spawner: one thread that starts core, egress and jails, and ends and reaps all of them.

It holds no secret and reads nothing from jails. Its end is the end of everything it started: by
PDEATHSIG, and by the guard (:mod:`jail.host.guard`) where that was taken back.

    serving --SIGTERM, SIGINT--> stopping: core is told and waited for, then the rest --all gone--> 0
    serving --core or egress cannot be kept running (jail/host/pair.py)--> stopping at once --all gone--> 1
"""

import fcntl
import os
import signal
import termios
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from jail.host.cgroups import UseCgroups, begin_cgroups
from jail.host.children import end_children
from jail.host.dumping import Dump
from jail.host.guard import Guard
from jail.host.homes import Homes
from jail.host.jails import JailPlan, Jails
from jail.host.launcher import HostUids
from jail.host.layout import Layout, Owners
from jail.host.loop import Loop
from jail.host.measure import own_use
from jail.host.measuring import Measuring
from jail.host.messages import (
    SPAWNER_EVENTS,
    AskUse,
    CoreReady,
    FromCore,
    HomeMeasured,
    HostError,
    JailFailed,
    KillJail,
    MeasureJails,
    MountsGiven,
    MountsRefused,
    Pong,
    PrepareUser,
    RemoveUser,
    Shutdown,
    Start,
    StartJail,
    UserReady,
    UseTold,
)
from jail.host.mounts import Mounts, nobody
from jail.host.pair import Pair
from jail.host.process import become_subreaper
from jail.host.profile import Limits, System
from jail.host.reloading import Fresh, Reloading
from jail.host.removals import Removals
from jail.host.services import ServiceSpec
from jail.host.starters import make_starter
from jail.host.syscalls import Machine
from jail.host.vitals import Notifier, Watchdog

_MARGIN_S: Final = 5.0  # for core, past the grace period, to close its files
_LAST_S: Final = 10.0  # for all the rest to end once it was killed

Observe = Callable[[str, Mapping[str, Any]], None]
"""Is given each event of the log: a snake_case name in the past tense and its values."""


@dataclass(frozen=True, slots=True)
class SpawnerConfig:
    """What the spawner has to know.

    Args:
        owners: core's and egress's ids when root; None for an ordinary user.
        user_uids: host uids that jails may have when root.
        lib, etc: as staged (:mod:`jail.host.staging`).
        max_alive: jails at once. max_starting: of them, being built at once.
        grace_s: what running turns get at SIGTERM, in seconds.
        command: runs in jails instead of the worker; for tests.
        app, start: how jails are started; see :func:`jail.host.starters.make_starter`.
        limits_of: of a user's jail; None: ``limits`` for all.
        mounts_of: names of a user's credentials that lie in their jail as files.
        cgroups: whether control groups are used; "required": or nothing is served.
    """

    data_dir: Path
    bwrap: Path
    machine: Machine
    system: System
    lib: Path
    etc: Path
    owners: Owners | None
    user_uids: range
    limits: Limits = field(default_factory=Limits)
    max_alive: int = 500
    max_starting: int = 4
    grace_s: float = 10.0
    command: tuple[str, ...] = ()
    app: Path | None = None
    start: Start = "exec"
    limits_of: Callable[[str], Limits] | None = None
    mounts_of: Callable[[str], tuple[str, ...]] = nobody
    cgroups: UseCgroups = "off"


def run_spawner(
    config: SpawnerConfig,
    core: ServiceSpec,
    egress: ServiceSpec,
    observe: Observe,
    reload: Callable[[], Fresh] | None = None,
    environ: Mapping[str, str] | None = None,
) -> int:
    """Keep core and egress running until SIGTERM or SIGINT; return the process's exit status.

    0: stopped as asked. 1: core or egress failed too often. Core is handed ``--control`` and
    ``--egress``, egress ``--core`` and ``--spawner``, beside the specs' own descriptors. At SIGHUP
    ``reload`` gives what is new (:mod:`jail.host.reloading`); without it, or where the terminal that
    we were started on has gone, SIGHUP ends the server. ``environ`` may name a service manager to tell
    (:mod:`jail.host.vitals`). To be called on the main
    thread of a process without other threads and children. Raises HostError when it cannot begin.
    """
    if (os.geteuid() == 0) != (config.owners is not None):
        raise HostError("owners have to be given by root, and by root alone")
    layout = Layout(config.data_dir, config.owners)
    layout.prepare()
    lock = _lock(layout.run_dir)
    become_subreaper()
    try:
        spawner = Spawner(config, layout, core, egress, observe, reload, Notifier(environ or {}))
        try:
            return spawner.run()
        finally:
            spawner.close()
    finally:
        become_subreaper(False)
        os.close(lock)


class Spawner:
    """See the module. ``run`` once, then ``close``."""

    def __init__(
        self,
        config: SpawnerConfig,
        layout: Layout,
        core: ServiceSpec,
        egress: ServiceSpec,
        observe: Observe,
        reload: Callable[[], Fresh] | None = None,
        notifier: Notifier | None = None,
    ) -> None:
        self._config, self._layout, self._log = config, layout, observe
        self._counted = dict.fromkeys(SPAWNER_EVENTS, 0)
        self._cgroups = begin_cgroups(config.cgroups, layout.run_dir)  # first: all else is born in them
        self._guard = Guard(self._cgroups)  # early: it has the least to inherit
        self._loop = Loop()
        queued = 8 * config.max_alive + 64
        self._pair = Pair(self._loop, core, egress, self, self._watch, self._observe, queued)
        self._starter = make_starter(config, layout.run_dir, HostUids(config.user_uids))
        self._plan = JailPlan(
            config.data_dir, config.system, config.lib, config.etc, config.limits,
            config.max_alive, config.max_starting, config.command, config.start, config.limits_of,
            config.mounts_of,
        )  # fmt: skip
        self._mounts = Mounts(self._loop, self._pair.ask_mounts)
        self._homes = Homes(self._loop, config.data_dir, self._on_home, self._on_home_late)
        self._removals = Removals(self._loop, config.data_dir, layout, self._pair.send)
        self._measuring = Measuring(self._loop, self._pair.send)
        self._jails = self._new_jails()
        self._notifier = notifier or Notifier({})
        self._watchdog = Watchdog(self._loop, self._notifier, self._pair.ping)
        self._reloading = (
            Reloading(self._loop, reload, self._pair.use, self._on_reload_end) if reload else None
        )
        self._on_terminal = os.isatty(2)
        self._dump = Dump(layout.run_dir / "dump-spawner.txt")
        self.stopping = False
        self._hard = False
        self._status = 0

    def run(self) -> int:
        """See :func:`run_spawner`."""
        self._loop.on_signal(signal.SIGCHLD, self._reap)
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.on_signal(number, self._on_stop_signal)
        self._loop.on_signal(signal.SIGHUP, self._on_hangup)
        self._loop.on_signal(signal.SIGUSR1, self._on_dump)
        self._dump.arm()
        self._pair.start()
        self._loop.run()
        return self._status

    def close(self) -> None:
        """End whatever is left, by force, and give back what is held."""
        self._jails.kill_all()
        self._homes.close()
        self._measuring.drop()
        if self._reloading is not None:
            self._reloading.close()
        self._dump.disarm()
        self._pair.close()
        self._starter.close()
        self._guard.close()
        end_children()
        self._cgroups.close()
        self._loop.close()

    def _observe(self, event: str, values: Mapping[str, Any]) -> None:
        """Log it, and count what is counted: of services by which it was."""
        counted = event.replace("service", str(values.get("service", "service")))
        if counted in self._counted:
            self._counted[counted] += 1
        self._log(event, values)

    # ---- for the pair (jail.host.pair.Keeper) -----------------------------------------------------

    def answered(self, service: str) -> None:
        """See :class:`jail.host.pair.Keeper`."""
        self._watchdog.answered(service)

    def mounts_answered(self, answer: MountsGiven | MountsRefused, fds: tuple[int, ...]) -> None:
        """See :class:`jail.host.pair.Keeper`."""
        self._mounts.answered(answer, fds)

    def egress_lost(self) -> None:
        """See :class:`jail.host.pair.Keeper`."""
        self._mounts.lose()

    def begin_life(self) -> None:
        """See :class:`jail.host.pair.Keeper`."""
        self._jails = self._new_jails()

    def end_life(self) -> None:
        """See :class:`jail.host.pair.Keeper`."""
        self._jails.kill_all()
        self._removals.kill_all()
        self._homes.close()
        self._measuring.drop()

    def life_is_over(self) -> bool:
        """See :class:`jail.host.pair.Keeper`."""
        return not self._jails

    def on_service_end(self) -> None:
        """See :class:`jail.host.pair.Keeper`."""
        self._end_rest()

    def give_up(self) -> None:
        """See :class:`jail.host.pair.Keeper`."""
        self._status = 1
        self._stop(hard=True)

    # ---- what core asks -----------------------------------------------------------------------

    def take(self, message: FromCore) -> None:
        """See :class:`jail.host.pair.Keeper`."""
        match message:
            case StartJail():
                self._start_jail(message)
            case KillJail():
                self._jails.kill(message.life)
            case MeasureJails():
                for user, limits in self._jails.homes(message.lives):
                    self._homes.look(user, limits)
                self._measuring.begin(self._jails.to_measure(message.lives))
            case AskUse():
                self._pair.send(UseTold(message.request, own_use(), dict(self._counted)))
            case PrepareUser():
                self._pair.send(UserReady(message.request, self._prepare(message)))
            case RemoveUser():
                self._remove(message)
            case CoreReady():
                self._observe("core_ready_seen", {})
                self._notifier.ready()
                self._watchdog.begin()
            case Pong():
                self._watchdog.answered("core")

    def _start_jail(self, message: StartJail) -> None:
        if self._removals.removes(message.user):
            self._pair.send(JailFailed(message.life, f"{message.user} is being removed"))
        else:
            self._jails.start(message)

    def _prepare(self, message: PrepareUser) -> str:
        try:
            self._starter.uids.identity(message.host_uid)
            if self._removals.removes(message.user):
                raise HostError(f"{message.user} is being removed")
            self._layout.prepare_user(message.user, message.host_uid)
        except HostError as error:
            return str(error)
        return ""

    def _remove(self, message: RemoveUser) -> None:
        try:
            theirs = self._starter.uids.identity(message.host_uid)
            if message.user in self._jails.users():
                raise HostError(f"a jail of {message.user} still runs")
            core = self._config.owners.core if self._config.owners else None
            self._homes.forget(message.user)
            self._removals.remove(message, theirs, core)
        except HostError as error:
            self._pair.send(UserReady(message.request, str(error)))

    def _on_home(self, home: HomeMeasured, limits: Limits) -> None:
        self._pair.send(home)
        self._jails.on_home(home, limits)

    def _on_home_late(self, user: str) -> None:
        self._observe("home_not_counted", {"user": user, "why": "it took too long: its limits do not hold"})

    def _new_jails(self) -> Jails:
        return Jails(
            self._loop, self._starter, self._plan, self._pair.send, self._watch, self._watch_group,
            self._observe, self._on_idle, self._mounts, self._cgroups,
        )  # fmt: skip

    def _on_idle(self) -> None:
        if self.stopping:
            self._stop_if_gone()
        else:
            self._pair.start_if_over()

    # ---- children -----------------------------------------------------------------------------

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if self._jails.reaped(pid, status) or self._removals.reaped(pid, status):
                continue
            self._pair.reaped(pid, status)
            if pid == self._guard.pid:
                self._replace_guard()
            if self._starter.reaped(pid):
                self._observe("template_ended", {"status": status})  # the next start makes another
            # any other is an orphan of one of those: reaping it is all it needs

    def _watch(self, pidfd: int) -> None:
        self._look_at_guard(self._guard.watch([pidfd]))

    def _watch_group(self, group: tuple[int, int]) -> None:
        self._look_at_guard(self._guard.watch_groups([group]))

    def _look_at_guard(self, took: bool) -> None:
        if not took:
            self._observe("guard_failed", {})
            self._guard.kill()  # its successor is given all of them

    def _replace_guard(self) -> None:
        self._guard.close()
        self._guard = Guard(self._cgroups)
        took = self._guard.watch([*self._pair.pidfds(), *self._jails.pidfds()])
        took = self._guard.watch_groups(self._jails.groups()) and took
        if took:
            self._observe("guard_replaced", {})
        self._look_at_guard(took)

    # ---- signals of the operator's -------------------------------------------------------------

    def _on_hangup(self) -> None:
        if self._reloading is None or (self._on_terminal and not _has_terminal()):
            self._on_stop_signal()
        elif not self.stopping:
            self._notifier.reloading()
            self._reloading.begin()

    def _on_reload_end(self, event: str, values: Mapping[str, Any]) -> None:
        self._observe(event, values)
        self._notifier.reloaded()

    def _on_dump(self) -> None:
        state = {
            "services": self._pair.pids(),
            "stopping": self.stopping,
            "recovering": self._pair.recovering,
            "jails": self._jails.describe(),
        }
        self._dump.write(state)
        self._pair.signal(signal.SIGUSR1)
        self._observe("state_dumped", {"path": str(self._dump.path)})

    # ---- the end ------------------------------------------------------------------------------

    def _on_stop_signal(self) -> None:
        # a second one means: now
        self._stop(hard=self.stopping)

    def _stop(self, *, hard: bool) -> None:
        if self._hard:
            return
        self.stopping, self._hard = True, hard
        self._notifier.stopping()
        self._pair.start_no_more()
        self._jails.refuse_new()
        if self._pair.core_is_gone:
            self._end_rest()
        elif hard or not self._pair.hears:
            self._pair.end_core()
        else:
            self._observe("shutdown_begun", {"grace_s": self._config.grace_s})
            self._pair.send(Shutdown(self._config.grace_s))
            self._loop.later(self._config.grace_s + _MARGIN_S, lambda: self._stop(hard=True))

    def _end_rest(self) -> None:
        if not self._pair.core_is_gone:
            return
        self._jails.kill_all()
        self._removals.kill_all()
        if self._pair.end_egress():
            self._loop.later(_LAST_S, self._loop.stop)  # close() takes the rest by force
        self._stop_if_gone()

    def _stop_if_gone(self) -> None:
        if not self._jails and self._pair.is_gone:
            self._loop.stop()


def _has_terminal() -> bool:
    """Whether the terminal that stderr is still exists: one that hung up answers EIO."""
    try:
        termios.tcgetattr(2)
    except (termios.error, OSError):
        return False
    return True


def _lock(run_dir: Path) -> int:
    fd = os.open(run_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise HostError(f"another server uses {run_dir.parent}; stop it first") from None
    return fd
