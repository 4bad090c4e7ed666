"""The pool's policy over made-up days of use, in simulated time: what keeping jails warm is worth.

1,000 users, two days; a start takes 0.15 s. ``hits`` is the share of turns that found a warm jail,
``median`` and ``p99`` the mean and the peak of what the jails held together, ``wait`` what a turn
waited for its jail. The floor is keeping every jail for ever. ``lru`` gives up the one longest unused
where the pool's own order considers how large it is, with the same budget.
"""

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from core.pool.jails import Budget, Decision, Evict, Jail, Refuse, Start, Why
from core.pool.policy import PoolPolicy
from scripts.benches._days import Said, days
from scripts.benches.result import Result, median_and_p99

_USERS = 1_000
_DAYS = 2
_SEED = 1
_START_S = 0.15
_DRAIN_S = 0.05
_FOR_EVER_S = 10 * 86_400.0
_MIB = 1 << 20


class _Lru(PoolPolicy):
    def _least_worth(self, _why: Why, _now_s: float, /) -> list[Jail]:
        return sorted(self._in["idle"].values(), key=lambda jail: jail.since_s)


def _budget(idle_s: float, jails: int = _USERS, memory_mib: int = 0) -> Budget:
    return Budget(jails=jails, starting=16, memory_bytes=memory_mib * _MIB, idle_s=idle_s, queue=_USERS)


_POLICIES: dict[str, PoolPolicy] = {
    "keep all": PoolPolicy(_budget(_FOR_EVER_S)),
    "time-out 60 s": PoolPolicy(_budget(60.0)),
    "time-out 600 s": PoolPolicy(_budget(600.0)),
    "time-out 3600 s": PoolPolicy(_budget(3_600.0)),
    "pool, 600 s, 25 jails": PoolPolicy(_budget(600.0, 25)),
    "pool, 600 s, 256 MiB": PoolPolicy(_budget(600.0, memory_mib=256)),
    "lru, 600 s, 256 MiB": _Lru(_budget(600.0, memory_mib=256)),
    "pool, 3600 s, 512 MiB": PoolPolicy(_budget(3_600.0, memory_mib=512)),
    "lru, 3600 s, 512 MiB": _Lru(_budget(3_600.0, memory_mib=512)),
}


@dataclass
class House:
    """Users' actors and the spawner, as far as the pool sees them, in simulated time."""

    policy: PoolPolicy
    now_s: float = 0.0
    warm: dict[str, int] = field(default_factory=dict)  # user to life, once it is built
    users: dict[int, str] = field(default_factory=dict)
    waiting: dict[str, list[Said]] = field(default_factory=dict)
    running: dict[str, int] = field(default_factory=dict)
    leaving: set[str] = field(default_factory=set)
    waits_s: list[float] = field(default_factory=list)
    hits: int = 0
    refused: int = 0
    peak_bytes: int = 0
    byte_seconds: float = 0.0
    _events: list[tuple[float, int, str, object]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _lives: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _tick_s: float | None = None

    def run(self, said: list[Said]) -> None:
        """All of it."""
        for each in said:
            self._at(each.at_s, "said", each)
        while self._events:
            at_s, _, what, about = heapq.heappop(self._events)
            self.byte_seconds += self.policy.memory_bytes * (at_s - self.now_s)
            self.now_s = at_s
            getattr(self, f"_{what}")(about)
            self.peak_bytes = max(self.peak_bytes, self.policy.memory_bytes)
            due_s = self.policy.next_deadline_s()
            if due_s is not None and (self._tick_s is None or due_s < self._tick_s):
                self._tick_s = due_s
                self._at(due_s, "tick", due_s)

    def _at(self, at_s: float, what: str, about: object) -> None:
        heapq.heappush(self._events, (max(at_s, self.now_s), next(self._numbers), what, about))

    def _tick(self, due_s: float) -> None:
        if due_s == self._tick_s:
            self._tick_s = None
            self._do(self.policy.tick(self.now_s))

    def _said(self, said: Said) -> None:
        user = said.user
        if user in self.warm and user not in self.leaving:
            self.hits += 1
            self._begin(said)
        else:
            self.waiting.setdefault(user, []).append(said)
            if user not in self.users.values():
                self._want(user)

    def _want(self, user: str) -> None:
        life = next(self._lives)
        self.users[life] = user
        self._do(self.policy.want(life, user, self.now_s))

    def _begin(self, said: Said) -> None:
        self.waits_s.append(self.now_s - said.at_s)
        self.running[said.user] = self.running.get(said.user, 0) + 1
        if self.running[said.user] == 1:
            self._do(self.policy.used(self.warm[said.user], True, self.now_s))
        self._at(self.now_s + said.runs_s, "over", said)

    def _over(self, said: Said) -> None:
        life = self.warm[said.user]
        self.policy.measured(life, said.memory_bytes, 2, 0.0, self.now_s)
        self.running[said.user] -= 1
        if not self.running[said.user]:
            self._do(self.policy.used(life, False, self.now_s))

    def _built(self, life: int) -> None:
        user = self.users[life]
        self.warm[user] = life
        for said in self.waiting.pop(user, []):
            self._begin(said)

    def _gone(self, life: int) -> None:
        user = self.users.pop(life)
        self.warm.pop(user, None)
        self.leaving.discard(user)
        self._do(self.policy.ended(life, "", self.now_s))
        if self.waiting.get(user):
            self._want(user)

    def _do(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            match decision:
                case Start(life, _):
                    self._at(self.now_s + _START_S, "built", life)
                case Evict(life, _):
                    self.leaving.add(self.users[life])
                    self._at(self.now_s + _DRAIN_S, "gone", life)
                case Refuse(life, _, _, _):
                    self.refused += len(self.waiting.pop(self.users.pop(life)))


def measure() -> Iterator[Result]:
    """Each policy over the same days."""
    said = days(_USERS, _DAYS, _SEED)
    floor = 0.0
    for name, policy in _POLICIES.items():
        house = House(policy)
        house.run(said)
        mean = house.byte_seconds / house.now_s / _MIB
        floor = floor or mean
        waits_ms = sorted(wait_s * 1_000 for wait_s in house.waits_s)
        median, p99 = median_and_p99(waits_ms)
        varied: dict[str, str | int | float] = {
            "policy": name,
            "turns": len(said),
            "hits": round(house.hits / len(said), 4),
            "refused": house.refused,
            "wait_ms_mean": round(sum(waits_ms) / len(waits_ms), 1),
            "wait_ms_median": round(median, 1),
            "wait_ms_p99": round(p99, 1),
            "of": "memory, mean over time; p99 is the peak",
        }
        yield Result("pool", varied, mean, house.peak_bytes / _MIB, "MiB", floor)
