"""The restart policy."""

import random

from actors.restart import Escalate, Forget, Restart, RestartPolicy


def policy(most: int = 3) -> RestartPolicy:
    return RestartPolicy(most=most, window_s=60, base_s=1, cap_s=3, rng=random.Random(1))


def test_a_temporary_child_is_forgotten_and_a_transient_one_only_after_an_orderly_end() -> None:
    assert policy().decide("a", "temporary", True, 0) == Forget()
    assert policy().decide("a", "transient", False, 0) == Forget()
    assert isinstance(policy().decide("a", "transient", True, 0), Restart)
    assert isinstance(policy().decide("a", "permanent", False, 0), Restart)


def test_delays_stay_below_a_ceiling_that_doubles_up_to_the_cap() -> None:
    for ceiling_s, nth in ((1, 1), (2, 2), (3, 3)):
        seen = []
        for seed in range(200):
            one = RestartPolicy(most=9, base_s=1, cap_s=3, rng=random.Random(seed))
            for _ in range(nth):
                decision = one.decide("a", "permanent", True, 0)
            assert isinstance(decision, Restart)
            seen.append(decision.delay_s)
        assert ceiling_s * 0.9 < max(seen) <= ceiling_s


def test_too_many_ends_in_the_window_escalate_and_old_ones_do_not_count() -> None:
    one = policy(most=2)
    assert isinstance(one.decide("a", "permanent", True, 0), Restart)
    assert isinstance(one.decide("a", "permanent", True, 1), Restart)
    assert one.decide("a", "permanent", True, 2) == Escalate(3)
    assert isinstance(one.decide("b", "permanent", True, 2), Restart)
    assert isinstance(one.decide("a", "permanent", True, 100), Restart)
