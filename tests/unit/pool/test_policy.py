"""The pool's decisions, one stimulus after another."""

import random
from dataclasses import replace

import pytest

from core.pool.holds import Holds
from core.pool.jails import Budget, Decision, Evict, Keep, Refuse, Start
from core.pool.policy import PoolPolicy

MIB = 1 << 20


class House:
    """A policy with a clock, and short ways to say what happens."""

    def __init__(self, **budget: object) -> None:
        given = {"jails": 3, "starting": 2, "idle_s": 100.0, "queue": 4, "queue_s": 10.0, "free_bytes": 0}
        self.policy = PoolPolicy(Budget(**{**given, **budget}))  # type: ignore[arg-type]
        self.now_s = 1_000.0
        self.lives = 0

    def want(self, user: str) -> list[Decision]:
        self.lives += 1
        return self.policy.want(self.lives, user, self.now_s)

    def used(self, life: int, busy: bool) -> list[Decision]:
        return self.policy.used(life, busy, self.now_s)

    def warm(self, user: str, memory_bytes: int | None = None) -> int:
        """A jail that is idle now."""
        assert self.want(user) == [Start(self.lives, 0.0)]
        self.used(self.lives, True)
        assert self.used(self.lives, False) == []
        if memory_bytes is not None:
            self.policy.measured(self.lives, memory_bytes, 2, 0.5, self.now_s)
        return self.lives

    def after(self, seconds: float) -> list[Decision]:
        self.now_s += seconds
        return self.policy.tick(self.now_s)

    def ended(self, life: int) -> list[Decision]:
        return self.policy.ended(life, "killed", self.now_s)


def test_an_idle_jail_goes_when_its_time_is_up_and_a_busy_one_never() -> None:
    house = House()
    idle, busy = house.warm("ann"), house.warm("bob")
    house.used(busy, True)
    assert house.policy.next_deadline_s() == house.now_s + 100
    assert house.after(99.9) == []
    assert house.after(0.2) == [Evict(idle, "idle")]
    assert house.after(100_000) == []
    assert house.policy.counts()["busy"] == 1


def test_use_begins_the_idle_time_anew() -> None:
    house = House()
    life = house.warm("ann")
    house.after(60)
    house.used(life, True)
    house.used(life, False)
    assert house.after(99) == []
    assert house.after(2) == [Evict(life, "idle")]


def test_a_jail_that_is_used_before_it_went_stays() -> None:
    house = House()
    life = house.warm("ann")
    assert house.after(101) == [Evict(life, "idle")]
    house.used(life, True)
    house.used(life, False)
    assert house.policy.counts()["idle"] == 1
    assert house.after(101) == [Evict(life, "idle")]


def test_an_operator_sets_other_times_for_a_user() -> None:
    house = House(users={"ann": Keep(always=True), "bob": Keep(idle_s=5.0)})
    house.warm("ann")
    bob = house.warm("bob")
    assert house.after(6) == [Evict(bob, "idle")]
    assert house.after(1_000_000) == []


def test_other_limits_count_for_the_jails_there_are() -> None:
    house = House(jails=9)
    ann, bob = house.warm("ann"), house.warm("bob")
    house.after(50)
    budget = replace(house.policy.budget, idle_s=40.0, users={"bob": Keep(always=True)})
    assert house.policy.apply(budget, house.now_s) == [Evict(ann, "idle")]
    assert house.after(1_000) == []
    assert house.policy.apply(Budget(idle_s=2_000.0, free_bytes=0), house.now_s) == []
    assert house.policy.next_deadline_s() == 1_000.0 + 2_000.0
    assert house.after(950) == [Evict(bob, "idle")]


def test_only_so_many_are_built_at_once_and_the_rest_in_their_order() -> None:
    house = House(jails=10)
    assert [house.want(user) for user in "abcd"] == [[Start(1, 0.0)], [Start(2, 0.0)], [], []]
    house.now_s += 1
    assert house.used(2, True) == [Start(3, 1.0)]
    assert house.ended(1) == [Start(4, 1.0)]


def test_a_jail_that_is_wanted_takes_the_place_of_the_one_idle_longest() -> None:
    house = House(jails=2)
    first, second = house.warm("ann"), house.warm("bob")
    house.after(1)
    house.used(first, True)
    house.used(first, False)
    assert house.want("cid") == [Evict(second, "room")]
    assert house.want("dan") == [Evict(first, "room")]
    assert house.want("eve") == [], "as many were asked to go as may be built at once"
    house.now_s += 2
    assert house.ended(second) == [Start(3, 2.0)]
    assert house.ended(first) == [Start(4, 2.0)]


def test_nobody_waits_longer_than_the_deadline_and_no_more_than_fit_the_queue() -> None:
    house = House(jails=1, queue=2)
    house.want("ann")
    house.used(1, True)
    assert house.want("bob") == []
    house.now_s += 3
    assert house.want("cid") == []
    (refused,) = house.want("dan")
    assert isinstance(refused, Refuse)
    assert (refused.life, refused.why, refused.retry_after_s) == (4, "queue", 5)
    assert house.policy.next_deadline_s() == house.now_s + 7
    (late,) = house.after(7)
    assert isinstance(late, Refuse)
    assert (late.life, late.why) == (2, "deadline")
    assert house.policy.withdraw(3)
    assert not house.policy.withdraw(3)
    assert house.ended(1) == []


def test_the_memory_budget_is_kept_by_large_and_long_idle_jails() -> None:
    house = House(jails=100, memory_bytes=100 * MIB, jail_bytes=10 * MIB)
    small, large = house.warm("ann", 10 * MIB), house.warm("bob", 60 * MIB)
    assert house.policy.memory_bytes == 70 * MIB
    third = house.warm("cid", 20 * MIB)
    assert house.policy.memory_bytes == 90 * MIB
    assert house.want("dan") == [Evict(large, "memory")]
    assert house.ended(large) == [Start(4, 0.0)]
    assert {jail.life for jail in house.policy.jails} == {small, third, 4}


def test_what_grew_past_the_budget_makes_others_go() -> None:
    house = House(jails=100, memory_bytes=100 * MIB, jail_bytes=10 * MIB)
    first, second = house.warm("ann", 30 * MIB), house.warm("bob", 30 * MIB)
    house.used(second, True)
    house.policy.measured(second, 95 * MIB, 9, 1.0, house.now_s)
    assert house.after(0.1) == [Evict(first, "memory")]
    assert house.after(0.1) == [], "what leaves counts as given back"


def test_when_the_machine_runs_short_jails_go_until_it_is_made_up() -> None:
    house = House(jails=100, free_bytes=100 * MIB)
    lives = [house.warm(user, 20 * MIB) for user in "abcde"]
    assert house.policy.machine(101 * MIB, 0.0, house.now_s) == []
    gone = house.policy.machine(70 * MIB, 0.0, house.now_s)
    assert gone == [Evict(life, "pressure") for life in lives[:2]]
    assert house.policy.machine(70 * MIB, 0.0, house.now_s) == []


def test_no_jail_is_started_into_a_machine_without_memory() -> None:
    house = House(free_bytes=100 * MIB, jail_bytes=10 * MIB)
    house.policy.machine(105 * MIB, 0.0, house.now_s)
    assert house.want("ann") == []
    assert house.policy.machine(200 * MIB, 0.0, house.now_s) == [Start(1, 0.0)]


def test_an_operators_favourites_go_last() -> None:
    house = House(jails=100, free_bytes=100 * MIB, users={"ann": Keep(always=True)})
    ann, bob = house.warm("ann", 90 * MIB), house.warm("bob", 1 * MIB)
    assert house.policy.machine(0, 0.0, house.now_s) == [Evict(bob, "pressure"), Evict(ann, "pressure")]


def test_a_late_loop_has_jails_built_one_at_a_time() -> None:
    house = House(jails=10)
    house.policy.machine(1 << 40, 0.3, house.now_s)
    assert [house.want(user) for user in "ab"] == [[Start(1, 0.0)], []]
    assert house.policy.machine(1 << 40, 0.0, house.now_s) == [Start(2, 0.0)]


def test_a_drained_pool_takes_nothing_and_gives_all_up_as_they_become_idle() -> None:
    house = House(jails=2)
    idle, busy = house.warm("ann"), house.warm("bob")
    house.used(busy, True)
    house.policy.want(9, "cid", house.now_s)
    decisions = house.policy.drain(True, house.now_s)
    assert [type(each) for each in decisions] == [Refuse]
    assert house.policy.counts()["leaving"] == 1, "ann's had to go for cid's already"
    (refused,) = house.want("dan")
    assert isinstance(refused, Refuse)
    assert refused.why == "draining"
    assert house.used(busy, False) == [Evict(busy, "operator")]
    house.ended(idle)
    house.policy.drain(False, house.now_s)
    assert house.want("eve") == [Start(house.lives, 0.0)]


def test_jails_to_measure_are_those_used_since_and_those_busy_for_long() -> None:
    house = House(jails=9)
    first, second = house.warm("ann"), house.warm("bob")
    assert house.policy.stale(9, house.now_s) == [first, second]
    assert house.policy.stale(1, house.now_s) == [first]
    for life in (first, second):
        house.policy.measured(life, MIB, 2, 0.5, house.now_s)
    assert house.policy.stale(9, house.now_s) == []
    house.used(second, True)
    assert house.policy.stale(9, house.now_s) == []
    assert house.policy.stale(9, house.now_s + 10) == [second]
    assert house.policy.get(second).cpu_s == 0.5


def die(house: House, user: str = "ann", fault: str | None = "") -> None:
    """A jail that is started and dies before it is ready."""
    assert house.want(user) == [Start(house.lives, 0.0)]
    house.policy.told_to_end(house.lives, fault)
    house.ended(house.lives)


def refusal(decisions: list[Decision]) -> Refuse:
    (refused,) = decisions
    assert isinstance(refused, Refuse)
    return refused


def test_a_jail_that_dies_at_once_is_held_for_a_growing_while_and_others_are_not() -> None:
    house = House()
    for _ in range(3):
        die(house)
    held = refusal(house.want("ann"))
    assert (held.why, held.retry_after_s, "3 times in a row (killed)" in held.message) == ("held", 5, True)
    assert [hold.user for hold in house.policy.holds.all(house.now_s)] == ["ann"]
    die(house, "bob")
    for delay_s in (10, 20, 40, 80, 160, 300, 300):
        house.after(held.retry_after_s)
        die(house, fault="fault_schema")
        held = refusal(house.want("ann"))
        assert (held.retry_after_s, "(fault_schema)" in held.message) == (delay_s, True)


def test_a_jail_that_does_its_work_or_lives_a_while_is_forgiven() -> None:
    for forgiven in (True, False):
        house = House()
        die(house)
        die(house)
        life = house.warm("ann") if forgiven else 0
        if forgiven:
            house.ended(life)
        die(house)
        assert isinstance(house.want("ann")[0], Start if forgiven else Refuse)
    house = House()
    for _ in range(9):
        house.want("ann")
        house.used(house.lives, True)
        house.after(6)
        house.ended(house.lives)
    assert house.want("ann") == [Start(house.lives, 0.0)]


def test_a_jail_that_was_told_to_end_or_evicted_is_not_blamed() -> None:
    house = House(idle_s=1.0)
    for _ in range(5):
        die(house, fault=None)
        life = house.warm("bob")
        assert house.after(1.5) == [Evict(life, "idle")]
        house.ended(life)
    assert house.want("ann") == [Start(house.lives, 0.0)]
    assert house.want("bob") == [Start(house.lives, 0.0)]


def test_an_operator_releases_a_held_jail_and_time_forgets_its_deaths() -> None:
    house = House()
    for _ in range(3):
        die(house)
    assert house.policy.holds.release("ann", house.now_s)
    assert not house.policy.holds.release("ann", house.now_s)
    for _ in range(3):
        die(house)
    house.after(4_000)
    die(house)
    die(house)
    assert house.want("ann") == [Start(house.lives, 0.0)]


def test_no_more_deaths_are_remembered_than_the_bound() -> None:
    holds = Holds()
    for number in range(20_000):
        for _ in range(3):
            holds.died(f"u{number}", "x" * 1_000, 1.0)
    assert len(holds.all(1.0)) == 10_000
    assert holds.of("u19999", 1.0) is not None
    assert holds.of("u1", 1.0) is None


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_the_books_are_right_and_the_limits_kept(seed: int) -> None:
    rng = random.Random(seed)
    budget = Budget(
        jails=5, starting=2, memory_bytes=rng.choice((0, 60 * MIB)), free_bytes=50 * MIB,
        jail_bytes=10 * MIB, idle_s=20.0, queue=3, queue_s=8.0,
    )  # fmt: skip
    policy, now_s, life = PoolPolicy(budget), 0.0, 0
    states: dict[int, str] = {}
    for _ in range(2_000):
        now_s += rng.expovariate(1.0)
        alive = [each for each, state in states.items() if state != "queued"]
        match rng.randrange(7):
            case 0 | 1:
                life += 1
                states[life] = "queued"
                decisions = policy.want(life, f"user{rng.randrange(20)}", now_s)
            case 2 | 3 if alive:
                decisions = policy.used(rng.choice(alive), rng.random() < 0.5, now_s)
            case 4 if alive:
                gone = rng.choice(alive)
                del states[gone]
                decisions = policy.ended(gone, "killed", now_s)
            case 5:
                decisions = policy.machine(rng.choice((0, 55, 1_000)) * MIB, 0.0, now_s)
            case _:
                if alive:
                    policy.measured(rng.choice(alive), rng.randrange(30 * MIB), 2, 0.1, now_s)
                decisions = policy.tick(now_s)
        for decision in decisions:
            match decision:
                case Start(started, waited_s):
                    assert states[started] == "queued"
                    assert 0 <= waited_s <= budget.queue_s
                    states[started] = "built"
                case Refuse(refused, _, message, _):
                    assert states.pop(refused) == "queued"
                    assert message
                case Evict(evicted, _):
                    assert states[evicted] == "built"
        jails = {jail.life: jail for jail in policy.jails}
        assert set(jails) == set(states)
        assert policy.alive == sum(state != "queued" for state in states.values()) <= budget.jails
        assert policy.counts()["starting"] <= budget.starting
        assert policy.counts()["queued"] <= budget.queue
        assert policy.counts() == {
            state: sum(jail.state == state for jail in jails.values()) for state in policy.counts()
        }
        measured = [j.memory_bytes for j in jails.values() if j.memory_bytes is not None]
        assert policy.memory_bytes >= sum(measured)
        due_s = policy.next_deadline_s()
        assert due_s is None or due_s > now_s
