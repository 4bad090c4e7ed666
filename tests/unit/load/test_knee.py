"""The search for the knee."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.load.knee import Attempt, search


def _holds_up_to(knee: int) -> Attempt:
    def attempt(streams: int) -> tuple[bool, dict[str, Any]]:
        return streams <= knee, {"streams": streams}

    return attempt


@given(st.integers(10, 399))
def test_it_is_found_within_a_tenth(knee: int) -> None:
    found = search(10, 400, _holds_up_to(knee))
    assert found.streams <= knee <= found.streams * 1.1 + 1
    assert len(found.tried) <= 12
    assert all(result == {"streams": streams} for streams, result in found.tried)


def test_it_is_none_where_not_even_the_least_holds() -> None:
    assert search(10, 400, _holds_up_to(5)).streams == 0


def test_all_that_was_asked_for_may_hold() -> None:
    assert search(10, 400, _holds_up_to(1_000)).streams == 400


@pytest.mark.parametrize(("low", "high"), [(1, 10), (10, 10), (20, 10)])
def test_bounds_that_are_none_are_refused(low: int, high: int) -> None:
    with pytest.raises(ValueError, match="between two numbers"):
        search(low, high, _holds_up_to(5))
