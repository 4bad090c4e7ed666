"""The pool's actor: between the users' actors, which want jails, and the spawner, which builds them."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import pykka

from actors.base import Actor, Ref, ask, tell, void
from actors.observer import Observer
from actors.supervisor import Timers
from actors.user_messages import EvictJail, JailExited, JailFailed, JailKilled
from core.errors import LinkError
from core.metrics import PoolMetrics
from core.pool.jails import Budget, Decision, Evict, Jail, PoolNow, Refuse, Start, Why
from core.pool.meminfo import available_bytes, machine
from core.pool.policy import PoolPolicy
from jail.host.messages import JailUse
from jail.wire.schema import Failure

_ASK_S = 5.0
_WATCH_S = 2.0
"""Between two looks at the machine's memory while there are jails."""
MEASURE, MEASURE_EVERY_S = 12, 4.0
"""So many jails, the spawner is asked to measure so often: together less than a hundredth of a core, the fork
in which it does so and the limit of that (jail.host.measuring) with it. `scripts/bench sampling`."""


class Builder(Protocol):
    """Core's end to the spawner. Thread-safe."""

    def launch(self, life: int, user: str, owner: Ref, request: str) -> None:
        """Have a jail built; ``owner`` is told JailStarted or JailFailed, later JailExited."""
        ...

    def kill(self, life: int) -> None:
        """End a jail; harmless when it has ended."""
        ...

    def measure(self, lives: tuple[int, ...]) -> None:
        """Have jails measured; the pool is told :class:`Measured`."""
        ...


@dataclass(frozen=True, slots=True)
class Want:
    """A user's actor wants a jail."""

    life: int
    user: str
    owner: Ref
    request: str = ""


@dataclass(frozen=True, slots=True)
class Used:
    """Whether something runs in a jail; for the first time when it is ready."""

    life: int
    busy: bool


@dataclass(frozen=True, slots=True)
class KillJail:
    """End a jail, or its wait for room; ``fault``: see PoolPolicy.told_to_end."""

    life: int
    fault: str | None


@dataclass(frozen=True, slots=True)
class Started:
    """The spawner: a jail is built; its worker is not ready yet."""

    life: int
    pid: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The spawner: a jail's processes are gone, or could not be started; ``how`` is for people."""

    life: int
    how: str


@dataclass(frozen=True, slots=True)
class Measured:
    """The spawner: what jails use; those that ended meanwhile are missing."""

    jails: tuple[JailUse, ...]


@dataclass(frozen=True, slots=True)
class EvictUser:
    """Ask: have a user's jail go when nothing runs in it any more. Answers whether there was one."""

    user: str
    why: Why = "operator"


@dataclass(frozen=True, slots=True)
class KillUser:
    """Ask: end a user's jail now, with what runs in it. Answers whether there was one."""

    user: str


@dataclass(frozen=True, slots=True)
class ReleaseUser:
    """Ask: start a user's jail again that is held. Answers whether it was."""

    user: str


@dataclass(frozen=True, slots=True)
class DrainPool:
    """Take no new jail and give up all that are idle or become so; or end that."""

    on: bool


@dataclass(frozen=True, slots=True)
class Apply:
    """Go on with other limits."""

    budget: Budget


@dataclass(frozen=True, slots=True)
class DescribePool:
    """Ask: the jails as they stand. Answers :class:`PoolView`."""


@dataclass(frozen=True, slots=True)
class WatchPool:
    """Ask: the figures for who watches. Answers :class:`core.pool.jails.PoolNow`."""


@dataclass(frozen=True, slots=True)
class JailView:
    """One jail. Times in seconds; ``pid`` is its first process (0: none yet), ``memory_bytes`` is
    proportional, and None until it was measured."""

    user: str
    life: int
    state: str
    pid: int
    age_s: float
    in_state_s: float
    start_s: float
    uses: int
    memory_bytes: int | None
    processes: int
    cpu_s: float


@dataclass(frozen=True, slots=True)
class HeldView:
    """A user whose jail died at once, so often, and is not started for so long (in seconds)."""

    user: str
    deaths: int
    reason: str
    for_s: float


@dataclass(frozen=True, slots=True)
class PoolView:
    """The pool: its jails, whose are held, and what the machine has left."""

    jails: tuple[JailView, ...]
    held: tuple[HeldView, ...]
    draining: bool
    memory_bytes: int
    available_bytes: int
    max_jails: int


@dataclass(frozen=True, slots=True)
class _Tick:
    due_s: float


@dataclass(frozen=True, slots=True)
class _Watch:
    pass


class PoolActor(Actor):
    """Carries out what :class:`PoolPolicy` decides.

    Args:
        builder: builds and ends jails.
        timers: for deadlines.
        lag_s: how late core's loop runs.
    """

    def __init__(
        self,
        name: str,
        parent: Ref | None,
        observer: Observer,
        *,
        budget: Budget,
        builder: Builder,
        timers: Timers,
        lag_s: Callable[[], float],
        metrics: PoolMetrics,
    ) -> None:
        super().__init__(name, parent, observer)
        self._policy = PoolPolicy(budget)
        self._builder = builder
        self._timers = timers
        self._lag_s = lag_s
        self._metrics = metrics
        self._owners: dict[int, Ref] = {}
        self._requests: dict[int, str] = {}  # until they are started
        self._armed_s: float | None = None
        self._watching = False
        self._measuring = False
        self._asked_s = -MEASURE_EVERY_S

    def handle(self, message: Any) -> Any:
        """One stimulus: decide, carry out, and arm the next deadline."""
        policy, now_s = self._policy, time.monotonic()
        answer: PoolView | PoolNow | bool | None = None
        match message:
            case Used(life, busy):
                self._carry_out(policy.used(life, busy, now_s))
            case Want(life, user, owner, request):
                self._owners[life] = owner
                self._requests[life] = request
                self._look(now_s)
                self._carry_out(policy.want(life, user, now_s))
            case Started(life, pid):
                policy.started(life, pid)
            case Ended(life, how):
                self._forget(life)
                self._note_end(life, how, now_s)
            case KillJail(life, fault):
                policy.told_to_end(life, fault)
                self._kill(life)
            case Measured(jails):
                self._measuring = False
                for jail in jails:
                    policy.measured(
                        jail.life, jail.memory_bytes, jail.processes, jail.cpu_s, now_s, jail.private_bytes
                    )
            case _Watch():
                self._watching = False
                self._look(now_s)
                self._measure(now_s)
            case _Tick(due_s):
                if due_s == self._armed_s:
                    self._armed_s = None
                    self._carry_out(policy.tick(now_s))
            case DrainPool(on):
                self.observer.note("pool_drained" if on else "pool_reopened")
                self._carry_out(policy.drain(on, now_s))
            case Apply(budget):
                self._carry_out(policy.apply(budget, now_s))
            case DescribePool():
                answer = self._view(now_s)
            case WatchPool():
                answer = policy.now(machine())
            case EvictUser(user, why):
                answer = self._evict(user, why, now_s)
            case KillUser(user):
                answer = self._end(user)
            case ReleaseUser(user):
                answer = policy.holds.release(user, now_s)
            case _:
                raise TypeError(f"unknown message {type(message).__name__}")
        self._arm(now_s)
        return answer

    # -- carrying out -------------------------------------------------------------------------------

    def _carry_out(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            match decision:
                case Start(life, waited_s):
                    self._metrics.waited(waited_s)
                    request = self._requests.pop(life, "")
                    self._builder.launch(life, self._user(life), self._owners[life], request)
                case Refuse(life, why, message, retry_after_s):
                    self._metrics.refused(why)
                    self._tell_owner(life, JailFailed(life, Failure("overloaded", message, retry_after_s)))
                    self._forget(life)
                case Evict(life, why):
                    self._metrics.evicted(why)
                    self.observer.note("jail_evicted", user=self._user(life), life=life, why=why)
                    self._tell_owner(life, EvictJail(life, False))
        self._metrics.now(self._policy.counts(), self._policy.memory_bytes)

    def _note_end(self, life: int, how: str, now_s: float) -> None:
        jail = self._policy.find_life(life)
        self._carry_out(self._policy.ended(life, how, now_s))
        hold = self._policy.holds.of(jail.user, now_s) if jail is not None else None
        if hold is not None and hold.last_s == now_s:
            self.observer.warn(
                "jail_held", user=hold.user, deaths=hold.deaths, reason=hold.reason,
                for_s=hold.until_s - now_s,
            )  # fmt: skip

    def _kill(self, life: int) -> None:
        if self._policy.withdraw(life):
            self._tell_owner(life, JailExited(life, "never started"))
            self._forget(life)
        else:
            self._builder.kill(life)

    def _forget(self, life: int) -> None:
        self._owners.pop(life, None)
        self._requests.pop(life, None)

    def _tell_owner(self, life: int, message: Any) -> None:
        owner = self._owners.get(life)
        if owner is not None:
            tell(owner, message)  # one that is gone takes its jail along

    def _evict(self, user: str, why: Why, now_s: float) -> bool:
        """Told to the actor even where the pool thinks the jail busy: it knows best when that ends."""
        if why == "credential":
            self._policy.holds.release(user, now_s)  # one that could not be had, or used, may have held them
        jail = self._policy.find(user)
        if jail is not None and jail.state != "queued":
            self._metrics.evicted(why)
            self.observer.note("jail_evicted", user=user, life=jail.life, why=why)
            self._tell_owner(jail.life, EvictJail(jail.life, True))
        return jail is not None

    def _end(self, user: str) -> bool:
        jail = self._policy.find(user)
        if jail is not None:
            self._policy.told_to_end(jail.life, None)
            self._tell_owner(jail.life, JailKilled(jail.life))
            self._kill(jail.life)
        return jail is not None

    # -- watching ---------------------------------------------------------------------------------------

    def _look(self, now_s: float) -> None:
        self._carry_out(self._policy.machine(available_bytes(), self._lag_s(), now_s))

    def _measure(self, now_s: float) -> None:
        if self._measuring or now_s < self._asked_s + MEASURE_EVERY_S:
            return
        if lives := tuple(self._policy.stale(MEASURE, now_s)):
            self._measuring, self._asked_s = True, now_s
            self._builder.measure(lives)

    def _arm(self, now_s: float) -> None:
        me, policy = self.actor_ref, self._policy
        if policy.jails and not self._watching:
            self._watching = True
            self._timers.call_later(_WATCH_S, lambda: void(tell(me, _Watch())))
        due_s = policy.next_deadline_s()
        if due_s is not None and (self._armed_s is None or due_s < self._armed_s):
            self._armed_s = due_s
            self._timers.call_later(max(0.0, due_s - now_s), lambda: void(tell(me, _Tick(due_s))))

    def _user(self, life: int) -> str:
        return self._policy.get(life).user

    def _view(self, now_s: float) -> PoolView:
        policy = self._policy
        return PoolView(
            tuple(_jail_view(jail, now_s) for jail in policy.jails),
            tuple(HeldView(h.user, h.deaths, h.reason, h.until_s - now_s) for h in policy.holds.all(now_s)),
            policy.draining,
            policy.memory_bytes,
            available_bytes(),
            policy.budget.jails,
        )


class Pool:
    """What the users' actors call: implements actors.user.Jails. Thread-safe once connected.

    Args:
        timed_out: told "pool" when the actor does not answer in time.
    """

    def __init__(self, timed_out: Callable[[str], None] = lambda _: None) -> None:
        self._connected: Ref | None = None
        self._timed_out = timed_out

    def connect(self, actor: Ref) -> None:
        """Use this :class:`PoolActor`."""
        self._connected = actor

    @property
    def _actor(self) -> Ref:
        if self._connected is None:
            raise LinkError("core is still starting; try again")
        return self._connected

    def launch(self, life: int, user: str, owner: Ref, request: str) -> None:
        """A jail for ``user``, when there is room; ``owner`` is told how it went."""
        tell(self._actor, Want(life, user, owner, request))

    def used(self, life: int, busy: bool) -> None:
        """Whether something runs in a jail."""
        tell(self._actor, Used(life, busy))

    def kill(self, life: int, fault: str | None) -> None:
        """End a jail; harmless when it has ended."""
        tell(self._actor, KillJail(life, fault))

    def started(self, life: int, pid: int) -> None:
        """The spawner says that a jail is built."""
        tell(self._actor, Started(life, pid))

    def ended(self, life: int, how: str) -> None:
        """The spawner says that a jail is gone, or could not be started."""
        tell(self._actor, Ended(life, how))

    def measured(self, jails: tuple[JailUse, ...]) -> None:
        """The spawner says what jails use."""
        tell(self._actor, Measured(jails))

    def drain(self, on: bool) -> None:
        """Take no new jail and give up the others as they become idle; or end that."""
        tell(self._actor, DrainPool(on))

    def apply(self, budget: Budget) -> None:
        """Go on with other limits."""
        tell(self._actor, Apply(budget))

    def renew(self, user: str) -> None:
        """Have a user's jail go when nothing runs in it: the credentials in the next one are others.

        A user who is held may start one at once.
        """
        tell(self._actor, EvictUser(user, "credential"))

    async def describe(self) -> PoolView:
        """The jails as they stand. Raises LinkError."""
        found: PoolView = await self.ask(DescribePool())
        return found

    async def watch(self) -> PoolNow:
        """The figures for who watches. Raises LinkError."""
        found: PoolNow = await self.ask(WatchPool())
        return found

    async def ask(self, message: EvictUser | KillUser | ReleaseUser | DescribePool | WatchPool) -> Any:
        """Ask the actor and wait. Raises LinkError."""
        try:
            return await asyncio.to_thread(ask, self._actor, message, _ASK_S)
        except pykka.Timeout:
            self._timed_out("pool")
            raise LinkError("the pool does not answer; try again") from None
        except pykka.ActorDeadError:
            raise LinkError("the pool does not answer; try again") from None


def _jail_view(jail: Jail, now_s: float) -> JailView:
    return JailView(
        jail.user,
        jail.life,
        jail.state,
        jail.pid,
        now_s - jail.wanted_s,
        now_s - jail.since_s,
        jail.start_s,
        jail.uses,
        jail.memory_bytes,
        jail.processes,
        jail.cpu_s,
    )
