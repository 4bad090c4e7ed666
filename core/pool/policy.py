"""What the pool decides, without a thread or a clock: stimuli in, decisions out.

    state     what it means                                  counts as alive
    queued    wanted, and no room for it yet                 no
    starting  being built, until its worker is ready         yes
    busy      a turn or a request of core's runs in it       yes
    idle      warm, and nothing runs                         yes
    leaving   told to go; its user's next message waits      yes

A busy jail is never given up. An idle one is when it was idle too long, when another needs its place
(then the one idle longest goes), or when memory is short (then large ones go sooner). Other orders,
how often a user comes among them, were tried on simulated days and were worse: docs/benchmarks.md.
"""

import heapq
import math
from collections.abc import Mapping
from typing import cast, get_args

from core.pool.holds import Holds
from core.pool.jails import Budget, Decision, Evict, Jail, Keep, PoolNow, Refuse, Start, State, Why, WhyNot
from core.pool.meminfo import Machine

_RETRY_AFTER_S = 5
_PRESSURE_MARGIN = 1.1
_AGAIN_S = 10.0
"""A busy jail is measured again after that."""
_IDLE_AGAIN_S = 300.0
_RECENT_S = 30.0
"""Below that, how long a jail is idle says little about when it is used again."""
_LAG_S = 0.25
"""Past that lag of core's loop jails are started one at a time."""
_QUICK_S = 5.0
"""A jail that dies within that time of its start, or before it is ready, died at once."""
_REFUSALS: Mapping[WhyNot, str] = {
    "queue": "too many wait for a jail already; try again",
    "deadline": "every jail the server can hold is in use; try again",
    "draining": "the server is being drained; try again later",
    "held": "your jail ended at once, {deaths} times in a row ({reason}): it is held for a while, then tried"
    " again; if that goes on, tell the operator",
}
_AS_ALL = Keep()


class PoolPolicy:
    """See the module. What happens often takes a time that does not depend on how many jails there are."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.draining = False
        self.holds = Holds()
        self._jails: dict[int, Jail] = {}
        self._in: dict[State, dict[int, Jail]] = {state: {} for state in get_args(State)}
        self._due: list[tuple[float, int]] = []  # a heap of idle jails; those that moved since are skipped
        self._measured_bytes = 0
        self._private_bytes = 0
        self._measured = 0
        self._typical = float(budget.jail_bytes)
        self._available: int | None = None
        self._lag_s = 0.0
        self._out: list[Decision] = []

    # -- what is there --------------------------------------------------------------------------------

    @property
    def jails(self) -> tuple[Jail, ...]:
        """All of them, queued ones too, in the order they were wanted."""
        return tuple(self._jails.values())

    def get(self, life: int) -> Jail:
        """One that has not ended."""
        return self._jails[life]

    def find_life(self, life: int) -> Jail | None:
        """One by its life, None where it has ended."""
        return self._jails.get(life)

    def find(self, user: str) -> Jail | None:
        """A user's jail."""
        return next((jail for jail in self._jails.values() if jail.user == user), None)

    def counts(self) -> dict[State, int]:
        """How many are in each state."""
        return {state: len(jails) for state, jails in self._in.items()}

    @property
    def alive(self) -> int:
        """How many there are, those that wait for room apart."""
        return len(self._jails) - len(self._in["queued"])

    @property
    def memory_bytes(self) -> int:
        """Of all that are alive; what was not measured yet counts as much as the others do."""
        return self._measured_bytes + round((self.alive - self._measured) * self._typical)

    def now(self, machine: Machine) -> PoolNow:
        """For who watches."""
        budget, jails = self.budget, self._jails.values()
        spare = max(0, machine.available_bytes - budget.free_bytes)
        # what is not limited may take all that is spare, beside what it has
        most = self.memory_bytes + spare
        most = min(most, budget.memory_bytes) if budget.memory_bytes else most
        return PoolNow(
            jails_bytes=tuple(jail.memory_bytes for jail in jails if jail.memory_bytes is not None),
            private_bytes=self._private_bytes,
            processes=sum(jail.processes for jail in jails),
            budget_bytes=most,
            jails_limit=budget.jails,
            capacity_jails=min(budget.jails, int(most // max(1.0, self._typical))),
            typical_bytes=round(self._typical),
            draining=self.draining,
            machine_bytes=machine.memory_bytes,
            available_bytes=machine.available_bytes,
            reserve_bytes=budget.free_bytes,
        )

    def stale(self, most: int, now_s: float) -> list[int]:
        """Lives of warm jails to measure, oldest first: used since the last time, or busy or idle for a
        while: what they share with others is shared among more or fewer then."""
        idle = self._in["idle"].values()
        found = [jail for jail in idle if jail.stale or now_s >= jail.measured_s + _IDLE_AGAIN_S]
        found += [jail for jail in self._in["busy"].values() if now_s >= jail.measured_s + _AGAIN_S]
        return [jail.life for jail in sorted(found, key=lambda jail: jail.measured_s)[:most]]

    # -- what happens -----------------------------------------------------------------------------------

    def want(self, life: int, user: str, now_s: float) -> list[Decision]:
        """A user's actor asks for a jail."""
        jail = Jail(life, user, now_s, since_s=now_s)
        if self.draining:
            self._refuse(jail, "draining")
        elif (hold := self.holds.of(user, now_s)) is not None:
            message = _REFUSALS["held"].format(deaths=hold.deaths, reason=hold.reason)
            self._out.append(Refuse(life, "held", message, math.ceil(hold.until_s - now_s)))
        elif len(self._in["queued"]) >= self.budget.queue:
            self._refuse(jail, "queue")
        else:
            self._jails[life] = self._in["queued"][life] = jail
        self._settle(now_s)
        return self._take()

    def used(self, life: int, busy: bool, now_s: float) -> list[Decision]:
        """A jail's user's actor says whether something runs in it; for the first time when it is ready."""
        jail = self._jails.get(life)
        if jail is None or jail.state == "queued":
            return []
        if jail.state == "starting":
            jail.start_s = now_s - jail.since_s
        jail.uses += busy
        if jail.state == "busy" and not busy:
            self.holds.lived(jail.user)
        jail.stale = True
        self._move(jail, "busy" if busy else "idle", now_s)
        if not busy:
            self._arm(jail)
        self._settle(now_s)
        return self._take()

    def started(self, life: int, pid: int) -> None:
        """A jail is built; its worker is not ready yet."""
        if life in self._jails:
            self._jails[life].pid = pid

    def measured(
        self, life: int, memory_bytes: int, processes: int, cpu_s: float, now_s: float, private_bytes: int = 0
    ) -> None:
        """What a jail's processes hold and have used; ``private_bytes`` of the memory nobody shares."""
        jail = self._jails.get(life)
        if jail is None or jail.state == "queued":
            return
        self._forget_memory(jail)
        jail.memory_bytes, jail.private_bytes = memory_bytes, private_bytes
        jail.processes, jail.cpu_s = processes, cpu_s
        jail.measured_s, jail.stale = now_s, False
        self._measured += 1
        self._measured_bytes += memory_bytes
        self._private_bytes += private_bytes
        self._typical += (memory_bytes - self._typical) / 32

    def told_to_end(self, life: int, fault: str | None) -> None:
        """A jail is being killed: for a fault ("": its end will say which), or None for none of its own."""
        if (jail := self._jails.get(life)) is not None:
            jail.excused, jail.reason = fault is None, fault or ""

    def ended(self, life: int, how: str, now_s: float) -> list[Decision]:
        """A jail's processes are gone, or it never came to be; ``how`` is for people."""
        if (jail := self._jails.get(life)) is not None:
            self._note_death(jail, jail.reason or how, now_s)
        self._remove(life)
        self._settle(now_s)
        return self._take()

    def withdraw(self, life: int) -> bool:
        """Nobody wants it any more: True if it was still waiting, and is now forgotten."""
        waiting = life in self._in["queued"]
        if waiting:
            self._remove(life)
        return waiting

    def machine(self, available_bytes: int, lag_s: float, now_s: float) -> list[Decision]:
        """What the machine has available, and how late core's loop runs."""
        self._available, self._lag_s = available_bytes, lag_s
        self._settle(now_s)
        return self._take()

    def drain(self, on: bool, now_s: float) -> list[Decision]:
        """Give up every jail as soon as it is idle and take no new one, or end that."""
        self.draining = on
        if on:
            for jail in list(self._in["queued"].values()):
                self._drop(jail, "draining")
        self._settle(now_s)
        return self._take()

    def apply(self, budget: Budget, now_s: float) -> list[Decision]:
        """Go on with other limits; they count for the jails there are, too."""
        self.budget = budget
        for jail in self._in["idle"].values():
            self._arm(jail)
        self._settle(now_s)
        return self._take()

    def tick(self, now_s: float) -> list[Decision]:
        """Deal with what is due."""
        self._settle(now_s)
        return self._take()

    def next_deadline_s(self) -> float | None:
        """When :meth:`tick` is due, or None."""
        self._skip_stale()
        times = [jail.wanted_s + self.budget.queue_s for jail in self._in["queued"].values()][:1]
        times += [due for due, _ in self._due[:1]]
        return min(times, default=None)

    def _note_death(self, jail: Jail, reason: str, now_s: float) -> None:
        if jail.excused or jail.state in ("queued", "leaving"):
            return
        if jail.state == "starting" or now_s < jail.launched_s + _QUICK_S:
            self.holds.died(jail.user, reason, now_s)
        else:
            self.holds.lived(jail.user)

    # -- deciding -------------------------------------------------------------------------------------

    def _settle(self, now_s: float) -> None:
        for jail in list(self._in["queued"].values()):
            if now_s < jail.wanted_s + self.budget.queue_s:
                break  # they are in the order of their deadlines
            self._drop(jail, "deadline")
        if self.draining:
            for jail in list(self._in["idle"].values()):
                self._evict(jail, "operator", now_s)
        self._skip_stale()
        while self._due and self._due[0][0] <= now_s:
            self._evict(self._jails[heapq.heappop(self._due)[1]], "idle", now_s)
            self._skip_stale()
        self._relieve(now_s)
        self._start_waiting(now_s)

    def _relieve(self, now_s: float) -> None:
        """Make up for memory that is missing; what leaves already counts as given back."""
        short, why = 0.0, "pressure"
        if self._available is not None:
            short = (self.budget.free_bytes - self._available) * _PRESSURE_MARGIN
        if self.budget.memory_bytes and self.memory_bytes - self.budget.memory_bytes > short:
            short, why = self.memory_bytes - self.budget.memory_bytes, "memory"
        if short > 0:
            short -= sum(self._needs(jail) for jail in self._in["leaving"].values())
            self._free(short, cast(Why, why), now_s)

    def _start_waiting(self, now_s: float) -> None:
        """Start what waits, oldest first, while there is room; else make some."""
        queued, starting = self._in["queued"], self._in["starting"]
        most = 1 if self._lag_s > _LAG_S else self.budget.starting
        while queued and len(starting) < most and self._obstacle() is None:
            jail = next(iter(queued.values()))
            self._move(jail, "starting", now_s)
            jail.launched_s = now_s
            self._out.append(Start(jail.life, now_s - jail.wanted_s))
        why = self._obstacle() if queued and len(starting) < most else None
        wanted = min(len(queued), most - len(starting)) - len(self._in["leaving"])
        if why is not None and wanted > 0:
            for jail in self._least_worth(why, now_s)[:wanted]:
                self._evict(jail, why, now_s)

    def _obstacle(self) -> Why | None:
        """Why no further jail can be started now; None if one can."""
        if self.alive >= self.budget.jails:
            return "room"
        limit = self.budget.memory_bytes
        if limit and self.memory_bytes + self._typical > limit:
            return "memory"
        if self._available is not None:
            coming = (len(self._in["starting"]) + 1) * self._typical
            if self._available - coming < self.budget.free_bytes:
                return "pressure"
        return None

    def _free(self, short: float, why: Why, now_s: float) -> None:
        """Give up idle jails until they make up for so many bytes."""
        if short <= 0:
            return
        for jail in self._least_worth(why, now_s):
            self._evict(jail, why, now_s)
            short -= self._needs(jail)
            if short <= 0:
                return

    def _least_worth(self, why: Why, now_s: float, /) -> list[Jail]:
        """Idle jails, the one that is given up first in front; an operator's favourites last."""

        def key(jail: Jail) -> tuple[bool, float]:
            cost = now_s - jail.since_s
            if why != "room":
                cost = (cost + _RECENT_S) * self._needs(jail)
            return self._keep(jail).always, -cost

        return sorted(self._in["idle"].values(), key=key)

    # -- small change -----------------------------------------------------------------------------------

    def _keep(self, jail: Jail) -> Keep:
        return self.budget.users.get(jail.user, _AS_ALL)

    def _arm(self, jail: Jail) -> None:
        keep = self._keep(jail)
        jail.due_s = 0.0  # what the heap has of it does not count any more
        if not keep.always:
            jail.due_s = jail.since_s + (self.budget.idle_s if keep.idle_s is None else keep.idle_s)
            heapq.heappush(self._due, (jail.due_s, jail.life))

    def _skip_stale(self) -> None:
        idle = self._in["idle"]
        while self._due:
            due_s, life = self._due[0]
            if life in idle and idle[life].due_s == due_s:
                return
            heapq.heappop(self._due)

    def _needs(self, jail: Jail) -> float:
        return self._typical if jail.memory_bytes is None else float(jail.memory_bytes)

    def _move(self, jail: Jail, state: State, now_s: float) -> None:
        del self._in[jail.state][jail.life]
        self._in[state][jail.life] = jail
        jail.state, jail.since_s = state, now_s

    def _remove(self, life: int) -> None:
        jail = self._jails.pop(life, None)
        if jail is not None:
            del self._in[jail.state][life]
            self._forget_memory(jail)

    def _forget_memory(self, jail: Jail) -> None:
        if jail.memory_bytes is not None:
            self._measured -= 1
            self._measured_bytes -= jail.memory_bytes
            self._private_bytes -= jail.private_bytes

    def _evict(self, jail: Jail, why: Why, now_s: float) -> None:
        self._move(jail, "leaving", now_s)
        self._out.append(Evict(jail.life, why))

    def _drop(self, jail: Jail, why: WhyNot) -> None:
        self._remove(jail.life)
        self._refuse(jail, why)

    def _refuse(self, jail: Jail, why: WhyNot) -> None:
        self._out.append(Refuse(jail.life, why, _REFUSALS[why], _RETRY_AFTER_S))

    def _take(self) -> list[Decision]:
        out, self._out = self._out, []
        return out
