"""The pool's actor between users' actors, a builder and the machine, all but itself played."""

import queue
import time
from collections.abc import Callable, Iterator
from typing import Any

import pykka
import pytest
from prometheus_client import CollectorRegistry

from actors.base import Ref, ask
from actors.edge import Edge
from actors.observer import Silent
from actors.supervisor import stop_and_wait
from actors.user_messages import EvictJail, JailExited, JailFailed, JailKilled
from core.metrics import PoolMetrics
from core.pool import holds
from core.pool.actor import DescribePool, EvictUser, KillUser, Pool, PoolActor, PoolView, ReleaseUser
from core.pool.jails import Budget
from jail.host.messages import JailUse

_LIMIT_S = 10.0


class Owner(pykka.ThreadingActor):
    """A user's actor: keeps what it is told."""

    def __init__(self, told: "queue.Queue[Any]") -> None:
        super().__init__()
        self.told = told

    def on_receive(self, message: Any) -> Any:
        self.told.put(message)


class FakeBuilder:
    """Implements core.pool.actor.Builder: keeps what it is asked for."""

    def __init__(self) -> None:
        self.launched: queue.Queue[tuple[int, str]] = queue.Queue()
        self.killed: queue.Queue[int] = queue.Queue()
        self.measured: queue.Queue[tuple[int, ...]] = queue.Queue()

    def launch(self, life: int, user: str, owner: Ref, request: str) -> None:
        assert owner.is_alive()
        self.launched.put((life, user))

    def kill(self, life: int) -> None:
        self.killed.put(life)

    def measure(self, lives: tuple[int, ...]) -> None:
        self.measured.put(lives)


class House:
    """The pool, one owner for everybody, and the builder."""

    def __init__(self, edge: Edge, budget: Budget) -> None:
        self.builder = FakeBuilder()
        self.registry = CollectorRegistry()
        self.pool = Pool()
        self.actor = PoolActor.start(
            "pool", None, Silent(), budget=budget, builder=self.builder, timers=edge, lag_s=lambda: 0.0,
            metrics=PoolMetrics(self.registry),
        )  # fmt: skip
        self.pool.connect(self.actor)
        self._told: queue.Queue[Any] = queue.Queue()
        self.owner = Owner.start(self._told)

    def told(self) -> Any:
        return self._told.get(timeout=_LIMIT_S)

    def want(self, life: int, user: str) -> None:
        self.pool.launch(life, user, self.owner, "")

    def warm(self, life: int, user: str) -> None:
        self.want(life, user)
        assert self.builder.launched.get(timeout=_LIMIT_S) == (life, user)
        self.pool.started(life, 4_000 + life)
        self.pool.used(life, True)
        self.pool.used(life, False)

    def view(self) -> PoolView:
        found: PoolView = ask(self.actor, DescribePool(), _LIMIT_S)
        return found

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"certosa_pool_{name}", labels)


Make = Callable[..., House]


@pytest.fixture
def house() -> Iterator[Make]:
    edge, made = Edge(), []
    edge.start()

    def make(**budget: Any) -> House:
        made.append(House(edge, Budget(**{"free_bytes": 0, **budget})))
        return made[-1]

    yield make
    for each in made:
        stop_and_wait(each.actor, _LIMIT_S)
        each.owner.stop()
    edge.stop()


def test_an_idle_jail_is_asked_to_go_on_time(house: Make) -> None:
    it = house(idle_s=0.05)
    it.warm(1, "ann")
    assert it.told() == EvictJail(1, False)
    it.pool.ended(1, "killed")
    assert it.view().jails == ()
    assert it.value("evictions_total", reason="idle") == 1
    assert it.value("jails", state="leaving") == 0


def test_who_waits_is_started_when_there_is_room_and_refused_when_there_is_none_in_time(house: Make) -> None:
    it = house(jails=1, queue_s=0.6)
    it.warm(1, "ann")
    it.pool.used(1, True)
    it.want(2, "bob")
    refused = it.told()
    assert isinstance(refused, JailFailed)
    assert (refused.life, refused.failure.code, refused.failure.retry_after_s) == (2, "overloaded", 5)
    it.want(3, "cid")
    it.pool.ended(1, "killed")
    assert it.builder.launched.get(timeout=_LIMIT_S) == (3, "cid")
    assert it.value("refused_total", reason="deadline") == 1
    assert it.value("wait_seconds_count") == 2


def test_a_wait_that_is_called_off_ends_and_a_jail_is_killed_by_its_builder(
    house: Make,
) -> None:
    it = house(jails=1)
    it.warm(1, "ann")
    it.pool.used(1, True)
    it.want(2, "bob")
    it.pool.kill(2, None)
    assert it.told() == JailExited(2, "never started")
    it.pool.kill(1, None)
    assert it.builder.killed.get(timeout=_LIMIT_S) == 1
    it.pool.ended(1, "killed")
    it.pool.kill(1, None)  # once more, too late: harmless
    assert it.view().jails == ()


def test_jails_are_measured_and_described(house: Make) -> None:
    it = house()
    it.warm(1, "ann")
    assert it.builder.measured.get(timeout=_LIMIT_S) == (1,)
    it.pool.measured((JailUse(1, 5 << 20, 2, 0.25), JailUse(9, 1, 1, 1.0)))
    (jail,) = it.view().jails
    assert (jail.user, jail.state, jail.pid, jail.uses) == ("ann", "idle", 4_001, 1)
    assert (jail.memory_bytes, jail.processes, jail.cpu_s) == (5 << 20, 2, 0.25)
    assert 0 < jail.in_state_s < jail.age_s < _LIMIT_S
    view = it.view()
    assert view.available_bytes > 1 << 20
    assert view.memory_bytes == 5 << 20


def _die_thrice(it: House, reason: str) -> None:
    """Have three jails of ann's end as soon as they begin."""
    for life in (1, 2, 3):
        it.want(life, "ann")
        assert it.builder.launched.get(timeout=_LIMIT_S) == (life, "ann")
        it.pool.ended(life, reason)


def test_a_held_jail_is_refused_shown_and_released(house: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holds, "_FIRST_S", 100.0)
    it = house()
    _die_thrice(it, "exit status 1")
    it.want(4, "ann")
    refused = it.told()
    assert isinstance(refused, JailFailed)
    assert refused.failure.code == "overloaded"
    assert 1 <= (refused.failure.retry_after_s or 0) <= 100
    assert "exit status 1" in refused.failure.message
    (held,) = it.view().held
    assert (held.user, held.deaths, held.reason, 0 < held.for_s <= 100) == ("ann", 3, "exit status 1", True)
    assert it.actor.ask(ReleaseUser("bob"), timeout=_LIMIT_S) is False
    assert it.actor.ask(ReleaseUser("ann"), timeout=_LIMIT_S) is True
    it.want(5, "ann")
    assert it.builder.launched.get(timeout=_LIMIT_S) == (5, "ann")


def test_an_operator_reaches_a_users_jail_and_learns_where_there_is_none(house: Make) -> None:
    it = house()
    it.warm(1, "ann")
    assert it.actor.ask(EvictUser("ann"), timeout=_LIMIT_S) is True
    assert it.told() == EvictJail(1, True)
    assert it.actor.ask(KillUser("ann"), timeout=_LIMIT_S) is True
    assert it.told() == JailKilled(1)
    assert it.builder.killed.get(timeout=_LIMIT_S) == 1
    assert it.actor.ask(KillUser("bob"), timeout=_LIMIT_S) is False
    it.pool.drain(True)
    assert it.told() == EvictJail(1, False)
    it.want(2, "bob")
    assert "drained" in it.told().failure.message
    assert it.view().draining


def test_a_jail_whose_credentials_are_others_now_goes_when_nothing_runs_in_it(house: Make) -> None:
    it = house()
    it.warm(1, "ann")
    it.warm(2, "bob")

    it.pool.renew("nobody")
    it.pool.renew("ann")

    assert it.told() == EvictJail(1, True)


def test_who_sets_the_credential_anew_that_their_jail_could_not_have_is_held_no_more(
    house: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holds, "_FIRST_S", 100.0)
    it = house()
    _die_thrice(it, "the credential does not open; set it again")
    it.pool.renew("bob")
    it.want(4, "ann")
    assert "set it again" in it.told().failure.message

    it.pool.renew("ann")
    it.want(5, "ann")

    assert it.builder.launched.get(timeout=_LIMIT_S) == (5, "ann")


def test_a_machine_without_memory_starts_nothing_until_it_has_some(
    house: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = 10 << 20
    monkeypatch.setattr("core.pool.actor.available_bytes", lambda: left)
    it = house(free_bytes=100 << 20)
    it.want(1, "ann")
    assert it.view().jails[0].state == "queued"
    left = 1 << 30
    deadline_s = time.monotonic() + _LIMIT_S
    assert it.builder.launched.get(timeout=deadline_s - time.monotonic()) == (1, "ann")
