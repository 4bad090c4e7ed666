"""All jails of one life of core's: started at core's word, followed, ended, reaped."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from jail.host.cgroups import Cgroups, JailCgroup
from jail.host.diagnosis import Diagnosis
from jail.host.launcher import JailSpec, Starter
from jail.host.layout import check_unlinked
from jail.host.loop import Loop, Timer
from jail.host.measuring import ToMeasure
from jail.host.messages import (
    HomeMeasured,
    HostError,
    JailExited,
    JailFailed,
    JailStarted,
    LimitMet,
    Start,
    StartJail,
    ToCore,
)
from jail.host.mounts import MountFiles, Mounts, nobody
from jail.host.profile import Limits, Profile, System, user_paths
from jail.host.running import Phase, RunningJail

Send = Callable[[ToCore, int | None], None]
Observe = Callable[[str, Mapping[str, Any]], None]

_STUCK_S: Final = 120.0  # bwrap got no further in this time; emulated and busy, it needs many seconds
_KILL_STEP_S: Final = 2.0
_TIDY_S: Final = 1.0
_NICENESS: Final = 5  # where no control group weighs the CPU
_BY_SIGKILL: Final = ("signal 9", "exit 137")
_DISK_SLACK: Final = 1.25
"""A home is refused what is new past its limit; one that runs on is ended past that times it."""


@dataclass(frozen=True, slots=True)
class JailPlan:
    """What every jail of this server has in common."""

    data_dir: Path
    system: System
    lib: Path
    etc: Path
    limits: Limits
    max_alive: int
    max_starting: int
    command: tuple[str, ...] = ()
    start: Start = "exec"
    limits_of: Callable[[str], Limits] | None = None
    mounts_of: Callable[[str], tuple[str, ...]] = nobody

    def limits_for(self, user: str) -> Limits:
        """A user's, which may be other than everybody's."""
        return self.limits if self.limits_of is None else self.limits_of(user)

    def spec(self, user: str, host_uid: int, files: MountFiles | None = None) -> JailSpec:
        """A user's jail, with these in it.

        Raises HostError for an id that isn't one, or directories that aren't.
        """
        paths = user_paths(self.data_dir, user)
        check_unlinked(paths)
        profile = Profile(
            self.system, self.lib, self.etc, paths.home, paths.agents, self.limits_for(user), self.command,
            files.names if files else (),
        )  # fmt: skip
        return JailSpec(profile, host_uid, files.fds if files else ())


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A jail that is to be started; ``files`` None: egress was not asked yet whether there are any."""

    request: StartJail
    files: MountFiles | None = None

    def close(self) -> None:
        if self.files is not None:
            self.files.close()


@dataclass(slots=True)
class _Entry:
    request: StartJail
    jail: RunningJail
    watched: tuple[int, ...] = ()
    told: bool = False  # core was sent JailStarted
    killed: bool = False  # at core's word
    timer: Timer | None = None
    diagnosis: Diagnosis | None = None  # ``jail`` is its own then
    limits: Limits = field(default_factory=Limits)
    cgroup: JailCgroup | None = None
    met: LimitMet = ""
    home: HomeMeasured | None = None  # as it was looked at last
    files: MountFiles = field(default_factory=MountFiles)  # until it runs


class Jails:
    """The table of jails.

    Args:
        guard, guard_group: whoever outlives us has to know of this process, by its pidfd; of this group,
            by a pidfd of its leader and itself (:mod:`jail.host.group`).
        idle: called whenever the last one has gone.
        mounts: asks for what lies in jails as files.
        cgroups: where jails' groups are made; None: there are none.
    """

    def __init__(
        self,
        loop: Loop,
        starter: Starter,
        plan: JailPlan,
        send: Send,
        guard: Callable[[int], None],
        guard_group: Callable[[tuple[int, int]], None],
        observe: Observe,
        idle: Callable[[], None],
        mounts: Mounts,
        cgroups: Cgroups | None = None,
    ) -> None:
        self._loop, self._starter, self._plan = loop, starter, plan
        self._send, self._observe, self._idle = send, observe, idle
        self._guard, self._guard_group = guard, guard_group
        self._mounts, self._cgroups = mounts, cgroups
        self._waiting: deque[_Wanted] = deque()
        self._asking: dict[int, tuple[StartJail, int]] = {}
        """By life, with the number of the question; those count as alive, and not as starting: whoever has no
        mounts must not wait for egress."""
        self._entries: dict[int, _Entry] = {}
        self._by_pid: dict[int, int] = {}
        self._open = True

    def __len__(self) -> int:
        return len(self._entries)

    def users(self) -> set[str]:
        """Whose jails are alive or waited for."""
        requests = [entry.request for entry in self._entries.values()]
        return {request.user for request in (*requests, *self._not_begun())}

    def describe(self) -> list[dict[str, object]]:
        """Each jail's life, user and phase, those that wait to be started too."""
        found: list[dict[str, object]] = [
            {
                "life": life,
                "user": entry.request.user,
                "phase": entry.jail.phase.name.lower(),
                "pids": list(entry.jail.pids),
                "killed": entry.killed,
            }
            for life, entry in self._entries.items()
        ]
        found += [{"life": r.life, "user": r.user, "phase": "waiting"} for r in self._not_begun()]
        return found

    def _not_begun(self) -> list[StartJail]:
        asking = [request for request, _ in self._asking.values()]
        return [*(wanted.request for wanted in self._waiting), *asking]

    def start(self, request: StartJail) -> None:
        """Start a jail, now or when fewer are starting. Raises HostError for a life in use."""
        begun = {*self._entries, *self._asking, *(wanted.request.life for wanted in self._waiting)}
        if request.life in begun:
            raise HostError(f"life {request.life} is in use")
        if not self._open:
            self._fail(request, "the server is shutting down")
        elif len(self._entries) + len(self._waiting) + len(self._asking) >= self._plan.max_alive:
            self._fail(request, f"{self._plan.max_alive} jails are alive (pool.max_jails)")
        else:
            self._waiting.append(_Wanted(request))
            self._start_waiting()

    def kill(self, life: int) -> None:
        """End a jail; one that has ended already is no error."""
        for wanted in self._waiting:
            if wanted.request.life == life:
                self._waiting.remove(wanted)
                wanted.close()
                self._fail(wanted.request, "it was killed before it started")
                return
        if (asking := self._asking.pop(life, None)) is not None:
            self._mounts.drop(asking[1])
            self._fail(asking[0], "it was killed before it started")
            return
        if (entry := self._entries.get(life)) is not None:
            entry.killed = True
            self._kill(entry)

    def kill_all(self) -> None:
        """End all and start none any more."""
        self._open = False
        for wanted in self._waiting:
            wanted.close()
        self._waiting.clear()
        for _, question in self._asking.values():
            self._mounts.drop(question)
        self._asking.clear()
        for entry in self._entries.values():
            self._kill(entry)

    def refuse_new(self) -> None:
        """Start none any more; those alive go on."""
        self._open = False

    def to_measure(self, lives: Iterable[int]) -> tuple[ToMeasure, ...]:
        """These, as they are measured; those that are gone are left out."""
        found = ((life, self._entries.get(life)) for life in lives)
        return tuple(ToMeasure(life, tuple(entry.jail.pids)) for life, entry in found if entry is not None)

    def homes(self, lives: Iterable[int]) -> list[tuple[str, Limits]]:
        """Whose jails these are, with what limits their homes."""
        found = (self._entries.get(life) for life in lives)
        return [(entry.request.user, entry.limits) for entry in found if entry is not None]

    def on_home(self, home: HomeMeasured, limits: Limits) -> None:
        """End the jail of a home that has gone far over its limit while something runs in it."""
        over_bytes = limits.disk_bytes and home.held_bytes > limits.disk_bytes * _DISK_SLACK
        over_files = limits.disk_files and home.files > limits.disk_files * _DISK_SLACK
        for entry in self._entries.values():
            if entry.request.user == home.user and entry.told and not entry.killed:
                before, entry.home = entry.home, home
                # one that shrinks, or is only looked at, is left alone: there people delete files
                grown = before is not None and (
                    home.held_bytes > before.held_bytes or home.files > before.files
                )
                if grown and (over_bytes or over_files):
                    entry.met, entry.killed = "disk", True
                    self._kill(entry)

    def pidfds(self) -> list[int]:
        """The pid 1 of every jail, as far as known."""
        found = (entry.jail.init_pidfd for entry in self._entries.values())
        return [fd for fd in found if fd is not None]

    def groups(self) -> list[tuple[int, int]]:
        """The process groups that jails were started in, as ``guard_group`` was told."""
        found = (entry.jail.group for entry in self._entries.values())
        return [group for group in found if group is not None]

    def reaped(self, pid: int, status: int) -> bool:
        """A child was waited for; whether it was one of ours."""
        life = self._by_pid.pop(pid, None)
        if life is None:
            return False
        entry = self._entries[life]
        entry.jail.reaped(pid, status)
        self._step(life)
        return True

    def _start_waiting(self) -> None:
        while self._waiting:
            starting = sum(not entry.told for entry in self._entries.values())
            if starting >= self._plan.max_starting:
                return
            wanted = self._waiting.popleft()
            try:
                if wanted.files is None and (names := self._plan.mounts_of(wanted.request.user)):
                    self._ask(wanted.request, names)
                    continue
                entry = self._begin(wanted.request, wanted.files or MountFiles())
            except HostError as error:
                wanted.close()
                self._fail(wanted.request, str(error))
                continue
            self._follow(entry)

    def _ask(self, request: StartJail, names: tuple[str, ...]) -> None:
        """Ask egress for what is to lie in a jail. Raises HostError."""
        question = self._mounts.ask(request.user, names, lambda found: self._on_files(request, found))
        self._asking[request.life] = request, question

    def _on_files(self, request: StartJail, found: MountFiles | str) -> None:
        del self._asking[request.life]
        if isinstance(found, str):
            self._fail(request, found)
        else:
            self._waiting.appendleft(_Wanted(request, found))  # it has waited its turn
            self._start_waiting()

    def _begin(self, request: StartJail, files: MountFiles) -> _Entry:
        """Start a jail in groups of its own. Raises HostError."""
        spec = self._plan.spec(request.user, request.host_uid, files)
        limits, cgroup = spec.profile.limits, None
        if self._cgroups is not None:
            cgroup = self._cgroups.make(limits)
            weighed = "cpu" in self._cgroups.controllers
            spec = replace(spec, niceness=0 if weighed else _NICENESS)
        try:
            if cgroup is not None:
                spec = replace(spec, cgroups=cgroup.procs)
            return _Entry(request, self._starter.start(spec), limits=limits, cgroup=cgroup, files=files)
        except HostError:
            self._leave(cgroup)
            raise

    def _leave(self, cgroup: JailCgroup | None) -> None:
        if cgroup is not None and self._cgroups is not None:
            self._cgroups.give_back(cgroup)
            # what is reaped a moment later still stands in it
            self._loop.later(_TIDY_S, self._cgroups.tidy)

    def _follow(self, entry: _Entry) -> None:
        life = entry.request.life
        self._entries[life] = entry
        entry.timer = self._loop.later(_STUCK_S, lambda: self._kill(entry))
        if entry.jail.group is not None:
            self._guard_group(entry.jail.group)
        self._watch(entry)

    def _watch(self, entry: _Entry) -> None:
        life, jail = entry.request.life, entry.jail
        for pid in jail.pids:
            self._by_pid[pid] = life
        wanted = jail.fds
        for fd in entry.watched:
            if fd not in wanted:
                self._loop.forget(fd)
        for fd in wanted:
            if fd not in entry.watched:
                self._loop.watch(fd, lambda: self._step(life))
        if jail.init_pidfd in wanted and jail.init_pidfd not in entry.watched:
            self._guard(jail.init_pidfd)
        entry.watched = wanted
        jail.release()

    def _step(self, life: int) -> None:
        entry = self._entries.get(life)
        if entry is None:
            return
        jail = entry.jail
        jail.step()
        # what was watched and is closed, now or as a child was reaped: another's may get its number
        for fd in entry.watched:
            if fd not in jail.fds:
                self._loop.forget(fd)
        entry.watched = tuple(fd for fd in entry.watched if fd in jail.fds)
        ended = jail.phase is Phase.ENDED
        if not ended:
            self._watch(entry)
        # one that ran and ended within a step was started all the same
        if jail.spawn_s > 0 and not entry.told and entry.diagnosis is None:
            self._on_running(entry)
        if ended:
            self._on_end(entry)

    def _on_running(self, entry: _Entry) -> None:
        entry.told = True
        entry.files.close()
        if entry.timer is not None:
            entry.timer.cancel()
        life, jail = entry.request.life, entry.jail
        self._send(JailStarted(life, jail.spawn_s, jail.init_pid, self._plan.start), jail.edge.detach())
        spawned = {"life": life, "spawn_s": round(jail.spawn_s, 6)}
        self._observe("jail_started", spawned | _asked_by(entry.request))
        self._start_waiting()

    def _on_end(self, entry: _Entry) -> None:
        life = entry.request.life
        for fd in entry.watched:
            self._loop.forget(fd)
        for pid in [pid for pid, of in self._by_pid.items() if of == life]:
            del self._by_pid[pid]
        if entry.timer is not None:
            entry.timer.cancel()
        del self._entries[life]
        entry.files.close()
        if entry.diagnosis is not None:
            self._fail(entry.request, entry.diagnosis.text())
        else:
            entry.jail.close()
            self._look_why(entry)
            self._leave(entry.cgroup)
            if entry.told:
                self._tell_exit(entry)
            elif entry.killed or not self._open:
                self._fail(entry.request, "it was killed before it started")
            else:
                if entry.jail.why:
                    failed = {"life": life, "message": entry.jail.why}
                    self._observe("jail_build_failed", failed | _asked_by(entry.request))
                self._diagnose(entry.request, entry.jail.why or entry.jail.how)
        self._start_waiting()
        if not self._entries:
            self._idle()

    def _look_why(self, entry: _Entry) -> None:
        """Whether the kernel ended it for want of memory; a tool's end alone leaves the jail alive."""
        killed = entry.jail.how in _BY_SIGKILL and not entry.killed and not entry.met
        if killed and entry.cgroup is not None and entry.cgroup.oom_kills():
            entry.met = "memory"

    def _tell_exit(self, entry: _Entry) -> None:
        life, how, met = entry.request.life, entry.jail.how, entry.met
        limit_bytes = {"memory": entry.limits.memory_bytes, "disk": entry.limits.disk_bytes, "": 0}[met]
        self._send(JailExited(life, how, met, limit_bytes), None)
        values: dict[str, object] = {"life": life, "how": how}
        self._observe("jail_exited", values | ({"limit": met, "limit_bytes": limit_bytes} if met else {}))

    def _diagnose(self, request: StartJail, why: str) -> None:
        try:
            spec = self._plan.spec(request.user, request.host_uid)
            diagnosis = Diagnosis(self._starter.plain, spec, why)
        except HostError as error:
            self._fail(request, str(error))
            return
        self._follow(_Entry(request, diagnosis.jail, diagnosis=diagnosis))

    def _kill(self, entry: _Entry) -> None:
        """SIGKILL for pid 1; for bwrap too if that did not end it."""
        entry.jail.kill()
        if entry.timer is not None:
            entry.timer.cancel()
        entry.timer = self._loop.later(_KILL_STEP_S, entry.jail.kill_hard)

    def _fail(self, request: StartJail, message: str) -> None:
        self._send(JailFailed(request.life, message), None)
        self._observe("jail_failed", {"life": request.life, "message": message} | _asked_by(request))


def _asked_by(request: StartJail) -> dict[str, str]:
    return {"request_id": request.request} if request.request else {}
