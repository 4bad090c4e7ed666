"""The restart policy: at once, then later and later, then no more."""

import random

from jail.host.restart import RestartPolicy


class Highest(random.Random):
    """Always the upper end."""

    def uniform(self, a: float, b: float) -> float:
        return b


def test_the_first_restart_is_at_once_and_the_fifth_failure_the_end() -> None:
    policy = RestartPolicy(uniform=Highest())

    assert [policy.failed(float(second)) for second in range(5)] == [0.0, 0.4, 0.8, 1.6, None]


def test_failures_long_ago_are_forgotten() -> None:
    policy = RestartPolicy(uniform=Highest())

    assert [policy.failed(61.0 * count) for count in range(20)] == [0.0] * 20


def test_the_delay_is_jittered_and_has_a_ceiling() -> None:
    policy = RestartPolicy(max_failures=100, uniform=random.Random(1))
    delays = [policy.failed(0.0) for _ in range(50)]

    assert all(delay is not None and 0.0 <= delay <= 10.0 for delay in delays)
    assert len(set(delays)) > 10
