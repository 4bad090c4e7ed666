"""What processes cost, looked at this one and those below it."""

import os
import time

import pytest

from core.capacity.processes import cost, cpu_below_s


def test_this_process_has_used_and_holds_something() -> None:
    before = cost(os.getpid())
    deadline_s = time.process_time() + 0.05
    while time.process_time() < deadline_s:
        pass
    now = cost(os.getpid())
    assert now.cpu_s > before.cpu_s
    assert now.memory_bytes > 1 << 20
    assert now.threads >= 1
    assert now.descriptors >= 1


def test_a_process_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        cost(1 << 30)


def test_nothing_is_counted_below_what_is_left_out() -> None:
    parent = os.getppid()
    assert cpu_below_s(parent, frozenset()) >= cost(os.getpid()).cpu_s - 1
    without = cpu_below_s(os.getpid(), frozenset())
    assert without < cost(os.getpid()).cpu_s
