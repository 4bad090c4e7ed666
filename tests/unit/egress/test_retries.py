"""Pauses are drawn from a growing range, honour what the other end asked for, and are bounded."""

import pytest

from core.egress.retries import Retries

RETRIES = Retries(4, 0.5, 3.0)


@pytest.mark.parametrize(("tried", "widest_s"), [(1, 0.5), (2, 1.0), (3, 2.0), (4, 3.0)])
def test_the_range_doubles_up_to_its_cap_and_jitter_is_all_of_it(tried: int, widest_s: float) -> None:
    assert RETRIES.pause_s(tried, None, lambda: 0.0) == 0.0
    assert RETRIES.pause_s(tried, None, lambda: 0.5) == widest_s / 2
    assert RETRIES.pause_s(tried, None, lambda: 1.0) == widest_s


def test_after_the_last_try_there_is_no_pause() -> None:
    assert RETRIES.pause_s(5, None, lambda: 0.0) is None
    assert Retries(0, 0.5, 3.0).pause_s(1, 0, lambda: 0.0) is None


def test_retry_after_is_the_least_and_the_cap_the_most() -> None:
    assert RETRIES.pause_s(1, 2, lambda: 0.0) == 2.0
    assert RETRIES.pause_s(1, 2, lambda: 0.5) == 2.25
    assert RETRIES.pause_s(3, 2, lambda: 1.0) == 3.0


def test_a_retry_after_beyond_the_cap_is_not_waited_for() -> None:
    assert RETRIES.pause_s(1, 3, lambda: 0.0) == 3.0
    assert RETRIES.pause_s(1, 4, lambda: 0.0) is None
