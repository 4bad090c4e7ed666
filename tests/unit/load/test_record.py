"""What a load test notes down: histograms that add up, windows, and figures made of them."""

import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.capacity.client import Turn
from scripts.load.record import WINDOW_S, Histogram, Recorder, merged
from scripts.load.results import errors, figures, slope_and_error

_TIMES = st.lists(st.floats(0.05, 100_000), min_size=1, max_size=200)


def _histogram(times: list[float]) -> Histogram:
    histogram = Histogram()
    for ms in times:
        histogram.add(ms)
    return histogram


@given(_TIMES, st.sampled_from([0.5, 0.95, 0.99]))
def test_a_percentile_is_right_to_one_percent(times: list[float], share: float) -> None:
    exact = sorted(times)[max(0, -(-int(share * 1_000) * len(times) // 1_000) - 1)]
    found = _histogram(times).percentile(share)
    assert found == pytest.approx(exact, rel=0.0101)


@given(_TIMES, _TIMES)
def test_histograms_add_up_and_survive_json(one: list[float], other: list[float]) -> None:
    whole = _histogram(one)
    whole.merge(Histogram.from_json([(a, b) for a, b in _histogram(other).to_json()]))
    assert whole.to_json() == _histogram(one + other).to_json()
    assert whole.count == len(one) + len(other)


def test_no_times_have_no_percentile() -> None:
    assert Histogram().percentile(0.5) is None


def _recorder() -> Recorder:
    record = Recorder(began_s=100.0)
    record.tokens("streamer/0", 101.0, [4.0] * 10)
    record.tokens("streamer/0", 101.0 + 2 * WINDOW_S, [5.0] * 30)
    record.tokens("streamer/1", 101.0 + 2 * WINDOW_S, [7.0] * 10)
    record.floor(101.0 + 2 * WINDOW_S, [1.0])
    record.turn(Turn(100.5, first_ms=20.0, whole_ms=1_000.0), judged=True)
    late = 100.0 + 2 * WINDOW_S
    record.turn(Turn(late, first_ms=40.0, whole_ms=500.0), judged=True)
    record.turn(Turn(late, whole_ms=500.0, error="overloaded"), judged=True)
    record.turn(Turn(late, whole_ms=500.0, error="too_many_turns"), judged=False)
    return record


def _result() -> dict[str, Any]:
    def process(cpu_s: float) -> dict[str, Any]:
        sizes = {"memory_bytes": 10 << 20, "own_bytes": 6 << 20}
        return {"cpu_s": cpu_s, **sizes, "descriptors": 9, "threads": 3}

    samples = [
        {
            "at_s": at_s,
            "processes": {"core": process(at_s * 0.5)},
            "jails": 2, "jail_bytes": 8 << 20, "jail_cpu_s": 1.0, "available_bytes": 1 << 30,
        }
        for at_s in (0.0, 10.0, 15.0)
    ]  # fmt: skip
    return {
        "windows": _recorder().to_json(),
        "samples": samples,
        "seconds": 3 * WINDOW_S,
        "settle_s": 2 * WINDOW_S,
    }


def test_what_came_before_all_had_settled_is_not_judged() -> None:
    windows = _recorder().to_json()
    assert merged(windows, 0).delta.count == 50
    assert merged(windows, 2 * WINDOW_S).delta.count == 40


def test_figures_are_what_was_recorded() -> None:
    found = figures(_result())
    assert found["errors"] == 1  # the one that is not judged is not counted
    assert found["first_token_p50_ms"] == pytest.approx(40, rel=0.01)
    assert found["delta_added_p50_ms"] == pytest.approx(4.0, rel=0.05)
    assert found["tokens_per_s"] == 40 / WINDOW_S
    assert found["least_served"] == pytest.approx(10 / statistics.median_high([10, 30]))
    assert found["cpu_core"] == 0.5
    assert found["memory_a_jail"] == 4 << 20
    assert errors(_result()) == {"overloaded": 1}


def test_what_nobody_measured_is_none() -> None:
    result = _result() | {"windows": []}
    found = figures(result)
    assert found["delta_added_p50_ms"] is None
    assert found["least_served"] is None
    once = result | {"samples": result["samples"][-1:]}
    assert figures(once)["cpu_core"] is None


@given(st.floats(-5, 5), st.floats(-100, 100))
def test_the_slope_of_a_line_is_found_without_an_error(slope: float, begin: float) -> None:
    times = [0.0, 0.5, 1.0, 2.0]
    found, error = slope_and_error(times, [begin + slope * t for t in times])
    assert found == pytest.approx(slope, abs=1e-9)
    assert error == pytest.approx(0, abs=1e-9)


def test_the_error_of_a_slope_is_that_of_least_squares() -> None:
    # by hand: residuals -1/6, 1/3, -1/6 about the line 1/6 + t/2; sqrt(1/6 / 1 / 2)
    found, error = slope_and_error([0.0, 1.0, 2.0], [0.0, 1.0, 1.0])
    assert found == pytest.approx(0.5)
    assert error == pytest.approx((1 / 12) ** 0.5)


def test_two_points_have_no_slope_to_be_sure_of() -> None:
    assert slope_and_error([0.0, 1.0], [0.0, 1.0]) == (None, None)
