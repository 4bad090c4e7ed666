"""The clock that purges go by, beside one that jumps."""

from pathlib import Path

import pytest

from core.purge_clock import FiledPurgeClock, PurgeClock

DAY_S = 86_400.0


class Clocks:
    def __init__(self, wall_s: float = 1_000 * DAY_S) -> None:
        self.wall_s, self.monotonic_s = wall_s, 50.0

    def clock(self, believed_s: float | None) -> PurgeClock:
        return PurgeClock(believed_s, lambda: self.wall_s, lambda: self.monotonic_s)

    def pass_by(self, seconds: float) -> None:
        self.wall_s += seconds
        self.monotonic_s += seconds


def test_it_is_the_machines_while_that_goes_on_evenly() -> None:
    clocks = Clocks()
    clock = clocks.clock(None)
    for seconds in (0, 10, DAY_S, 400 * DAY_S, 1):
        clocks.pass_by(seconds)
        assert clock.now_s() == clocks.wall_s


def test_a_jump_ahead_carries_it_no_faster_than_twice_the_time_that_passes() -> None:
    clocks = Clocks()
    clock = clocks.clock(None)
    before_s = clock.now_s()
    clocks.wall_s += 3_650 * DAY_S
    assert clock.now_s() == before_s
    clocks.pass_by(DAY_S)
    assert clock.now_s() == before_s + 2 * DAY_S
    clocks.wall_s -= 3_650 * DAY_S
    assert clock.now_s() == clocks.wall_s == before_s + DAY_S


@pytest.mark.parametrize(("off_days", "said_days"), [(0.5, 0.5), (1, 1), (30, 1), (-5, -5)])
def test_a_start_carries_it_a_day_at_most(off_days: float, said_days: float) -> None:
    clocks = Clocks()
    believed_s = clocks.wall_s
    clocks.wall_s += off_days * DAY_S
    assert clocks.clock(believed_s).now_s() == believed_s + said_days * DAY_S


def test_after_a_long_time_off_it_catches_up() -> None:
    clocks = Clocks()
    clock = clocks.clock(clocks.wall_s - 30 * DAY_S)
    for _ in range(30):
        clocks.pass_by(DAY_S)
        clock.now_s()
    assert clock.now_s() == clocks.wall_s


def test_what_it_said_is_kept_in_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "purged-until"
    said_s = FiledPurgeClock(path).now_s()
    assert path.read_text() == f"{int(said_s)}\n"
    path.write_text(f"{int(said_s - 100 * DAY_S)}\n")
    again_s = FiledPurgeClock(path).now_s()
    assert said_s - 99 * DAY_S - 1 <= again_s < said_s - 98 * DAY_S
    path.write_text("what?")
    assert FiledPurgeClock(path).now_s() >= said_s
    assert [at.name for at in tmp_path.iterdir()] == ["purged-until"]
