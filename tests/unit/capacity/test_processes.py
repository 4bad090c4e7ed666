"""What processes cost, looked at this one and those below it."""

import mmap
import os
import time
from pathlib import Path

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


def test_what_is_allocated_is_ones_own_and_what_a_file_is_behind_is_not(tmp_path: Path) -> None:
    large = 32 << 20
    path = tmp_path / "file"
    path.write_bytes(bytes(large))
    before = cost(os.getpid())
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert sum(mapped[::4096]) == 0
        beside_a_file = cost(os.getpid())
    allocated = bytes(large // 2) + b"x" * (large // 2)
    with_more = cost(os.getpid())
    del allocated
    assert beside_a_file.memory_bytes - before.memory_bytes > large * 0.9
    assert beside_a_file.own_bytes - before.own_bytes < large * 0.1
    assert with_more.own_bytes - before.own_bytes > large * 0.9


def test_a_process_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        cost(1 << 30)


def test_nothing_is_counted_below_what_is_left_out() -> None:
    parent = os.getppid()
    assert cpu_below_s(parent, frozenset()) >= cost(os.getpid()).cpu_s - 1
    without = cpu_below_s(os.getpid(), frozenset())
    assert without < cost(os.getpid()).cpu_s
