"""Who gives up a connection when all are taken."""

from collections.abc import Callable

import pytest

from core.hub.places import Place, Places


class Crowd:
    """Places, and who had to go."""

    def __init__(self, most: int) -> None:
        self.places = Places(most)
        self.gone: list[str] = []
        self.now_s = 0.0

    def enter(self, address: str, name: str = "", busy: bool = False) -> Place | None:
        """The place of one who came, if there was one."""
        self.now_s += 1
        place = Place(address, self.now_s, lambda: self.gone.append(name or address), busy)
        return place if self.places.take(place) else None


def test_the_address_that_has_most_idle_ones_gives_up_its_oldest() -> None:
    crowd = Crowd(6)
    crowd.enter("192.0.2.1")
    for name in ("first", "second", "third"):
        crowd.enter("192.0.2.66", name)
    for _ in range(2):
        crowd.enter("192.0.2.7", busy=True)
    assert crowd.enter("192.0.2.2") is not None
    assert crowd.gone == ["first"]
    assert crowd.enter("192.0.2.66", "fourth") is not None, "in place of its own"
    assert crowd.gone == ["first", "second"]
    assert len(crowd.places) == 6


def test_those_that_are_answered_stay_and_nobody_else_comes_in() -> None:
    crowd = Crowd(3)
    inside = [crowd.enter("192.0.2.1", busy=True) for _ in range(3)]
    assert crowd.enter("192.0.2.2") is None
    assert crowd.gone == []
    assert inside[0] is not None
    crowd.places.leave(inside[0])
    crowd.places.leave(inside[0])
    assert crowd.enter("192.0.2.2") is not None


def test_one_that_was_answered_is_idle_from_then_on() -> None:
    crowd = Crowd(2)
    first, _ = crowd.enter("192.0.2.1", "first"), crowd.enter("192.0.2.1", "second")
    assert first is not None
    with first.answering(lambda: 9.0):
        during = first.busy
    assert (during, first.busy) == (True, False)
    assert crowd.enter("192.0.2.1", "third") is not None
    assert crowd.gone == ["second"], "the first was answered since"


@pytest.mark.parametrize("of", [lambda n: f"2001:db8::{n + 1:x}", lambda _: "::ffff:192.0.2.66"])
def test_one_customers_many_addresses_are_one(of: Callable[[int], str]) -> None:
    crowd = Crowd(10)
    for n in range(4):
        crowd.enter(of(n), f"theirs {n}")
    for name in ("one", "two", "three"):
        crowd.enter("192.0.2.1", name)
        crowd.enter("192.0.2.2", name)
    assert crowd.enter("192.0.2.3") is not None
    assert crowd.gone == ["theirs 0"]


def test_of_many_several_go_at_once_so_that_a_flood_is_not_looked_through_each_time() -> None:
    crowd = Crowd(160)
    for n in range(160):
        crowd.enter("192.0.2.66", str(n))
    assert crowd.enter("192.0.2.1") is not None
    assert crowd.gone == [str(n) for n in range(10)]
    for _ in range(9):
        assert crowd.enter("192.0.2.1") is not None
    assert len(crowd.gone) == 10
