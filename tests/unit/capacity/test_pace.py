"""The names of the model server that speaks at a set pace, and its tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.capacity.pace import Pace, parse_pace, stamps_s


@given(st.builds(Pace, st.sampled_from([0.5, 20.0, 1_000.0]), st.integers(0, 9_999), st.integers(0, 9)))
def test_a_name_says_all_of_a_pace(pace: Pace) -> None:
    assert parse_pace(pace.model) == pace


@pytest.mark.parametrize("name", ["", "pace", "pace-0-5", "pace-1-", "pace-1-2-3-4", "gpt-1-2"])
def test_other_names_are_none(name: str) -> None:
    assert parse_pace(name) is None


def test_tokens_are_found_among_other_bytes() -> None:
    assert stamps_s(b'{"content":"@12.000001 @13.500000 "} @1 @2.5 ') == [12.000001, 13.5]
