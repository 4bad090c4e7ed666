"""The scenarios: who takes part, and when an objective is met."""

import pytest

from scripts.load.plan import Objective, names, scenario


@pytest.mark.parametrize("name", names())
def test_everybody_asked_for_takes_part(name: str) -> None:
    assert scenario(name).people >= 2
    assert scenario(name, users=12).people == 12
    assert scenario(name).objectives


def test_of_some_so_many_stream() -> None:
    chosen = scenario("mixed", users=20, streams=5)
    assert (chosen.of("streamer"), chosen.of("visitor")) == (5, 15)


@pytest.mark.parametrize(("users", "streams"), [(1, 0), (0, 0), (5, 6), (5, -1)])
def test_numbers_that_cannot_be_are_refused(users: int, streams: int) -> None:
    with pytest.raises(ValueError, match="cannot be"):
        scenario("mixed", users, streams)


def test_an_objective_of_a_figure_that_is_missing_is_missed() -> None:
    most, least = Objective("x", 5, "ms"), Objective("y", 0.5, "", least=True)
    assert [most.met(value) for value in (5, 5.1, None)] == [True, False, False]
    assert [least.met(value) for value in (0.5, 0.4, None)] == [True, False, False]
