"""Shares among many, and the pace of one."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from actors.fairness import Pace, PaceLimits, Shares

QUANTUM = 16
MOST = 100
COSTS = st.lists(st.integers(1, MOST), min_size=1, max_size=20)


class Flows:
    """Users with endless work, whose pieces cost what they cost in turn."""

    def __init__(self, costs: list[list[int]]) -> None:
        self.shares: Shares[int] = Shares(QUANTUM)
        self.costs = costs
        self.at = [0] * len(costs)
        self.served: Counter[int] = Counter()
        self.visits: list[int] = []
        for user in range(len(costs)):
            self.shares.wake(user)

    def visit(self) -> tuple[int, int]:
        found = self.shares.next()
        assert found is not None
        user, allowance = found
        spent = 0
        while spent < allowance:
            spent += self.costs[user][self.at[user] % len(self.costs[user])]
            self.at[user] += 1
        self.shares.served(user, spent, more=True)
        self.served[user] += spent
        self.visits.append(user)
        return user, spent


@given(st.lists(COSTS, min_size=2, max_size=6), st.integers(1, 200))
def test_shares_are_equal_by_cost_whatever_the_pieces_are(costs: list[list[int]], visits: int) -> None:
    flows = Flows(costs)
    for _ in range(visits):
        flows.visit()
        served = [flows.served[user] for user in range(len(costs))]
        assert max(served) - min(served) <= QUANTUM + MOST


@given(st.lists(COSTS, min_size=2, max_size=6), st.integers(1, 100))
def test_nobody_waits_for_more_than_a_share_and_a_piece_of_each_other(
    costs: list[list[int]], visits: int
) -> None:
    flows = Flows([*costs, [1]])
    late, waited = len(costs), 0  # the last owes nothing, ever
    for _ in range(visits):
        user, spent = flows.visit()
        waited = 0 if user == late else waited + spent
        assert waited <= len(costs) * (QUANTUM + MOST)


@given(COSTS, st.integers(1, 50))
def test_somebody_new_is_served_before_anybody_is_served_twice(costs: list[int], visits: int) -> None:
    flows = Flows([costs, costs, costs])
    for _ in range(visits):
        flows.visit()
    flows.costs.append([1])
    flows.at.append(0)
    flows.shares.wake(3)
    seen: Counter[int] = Counter()
    while 3 not in seen:
        seen[flows.visit()[0]] += 1
    assert max(seen.values()) <= 1


def test_who_overdrew_pays_in_the_rounds_after() -> None:
    flows = Flows([[4 * QUANTUM], [1]])
    for _ in range(20):
        flows.visit()
    assert abs(flows.served[0] - flows.served[1]) <= 5 * QUANTUM
    assert flows.visits.count(1) > 3 * flows.visits.count(0)


def test_to_go_idle_pays_no_debt_and_saves_nothing() -> None:
    shares: Shares[str] = Shares(QUANTUM)
    shares.wake("steady")
    shares.wake("gamer")
    turns: Counter[str] = Counter()
    for _ in range(50):
        found = shares.next()
        assert found is not None
        turns[found[0]] += 1
        gamer = found[0] == "gamer"
        shares.served(found[0], 4 * QUANTUM if gamer else QUANTUM, more=not gamer)
        shares.wake("gamer")
    assert turns["steady"] > 3 * turns["gamer"]

    shares.drop("gamer")
    assert shares.next() == ("steady", QUANTUM)
    shares.served("steady", 1, more=False)
    shares.wake("steady")
    assert shares.next() == ("steady", QUANTUM)


def test_alone_one_is_served_again_and_again_and_owes_nobody() -> None:
    shares: Shares[str] = Shares(QUANTUM)
    for _ in range(10):
        shares.wake("alone")
        assert shares.next() == ("alone", QUANTUM)
        shares.served("alone", MOST, more=False)
    assert shares.next() is None
    assert "alone" not in shares
    assert len(shares) == 0


LIMITS = PaceLimits(per_s=100, burst=200, patience_s=5)


def test_a_burst_is_free_and_then_the_pace_holds() -> None:
    pace = Pace(LIMITS, 0.0)
    assert pace.spend(199, 0.0) == 0.0
    wait_s = pace.spend(11, 0.0, enough=10)
    assert 0.19 < wait_s < 0.21
    assert pace.spend(9, wait_s) == 0.0


@given(st.lists(st.tuples(st.integers(1, 500), st.floats(0, 3)), min_size=1, max_size=50))
def test_no_more_than_the_burst_and_the_pace_go_by(steps: list[tuple[int, float]]) -> None:
    pace, now_s, before = Pace(LIMITS, 0.0), 0.0, 0
    for count, pause_s in steps:
        assert before <= LIMITS.burst + LIMITS.per_s * now_s + 1e-6
        before += count
        now_s += pause_s + pace.spend(count, now_s)


def press(pace: Pace, now_s: float, until_s: float) -> float:
    while now_s < until_s:
        now_s += pace.spend(50, now_s, enough=10)
    return now_s


def test_who_never_lets_up_abuses_it_and_who_pauses_does_not() -> None:
    pace = Pace(LIMITS, 0.0)
    now_s = press(pace, 0.0, 4.0)
    assert not pace.abused(now_s)
    assert pace.abused(press(pace, now_s, 6.0))

    pausing, now_s = Pace(LIMITS, 0.0), 0.0
    for _ in range(5):
        now_s = press(pausing, now_s, now_s + 4.0)
        assert not pausing.abused(now_s)
        now_s += 2.0
