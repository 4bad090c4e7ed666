"""A breaker opens after failures in a row, lets one chat try, and believes its end."""

from core.egress.breaker import Breaker


def _opened() -> Breaker:
    breaker = Breaker(3, 10.0)
    assert [breaker.failed(at_s) for at_s in (1.0, 2.0, 3.0)] == [False, False, True]
    return breaker


def test_it_opens_only_after_so_many_failures_in_a_row() -> None:
    breaker = Breaker(2, 10.0)
    assert not breaker.failed(0.0)
    assert not breaker.succeeded()
    assert not breaker.failed(0.0)
    assert breaker.state(0.0) == "closed"
    assert breaker.failed(0.0)
    assert breaker.state(0.0) == "open"


def test_while_open_it_admits_nobody_and_says_how_long() -> None:
    breaker = _opened()
    assert not breaker.admit(12.9)
    assert breaker.wait_s(5.0) == 8.0
    assert breaker.failures == 3


def test_half_open_it_admits_one_at_a_time() -> None:
    breaker = _opened()
    assert breaker.state(13.0) == "half_open"
    assert breaker.admit(13.0)
    assert not breaker.admit(13.0)
    assert breaker.wait_s(13.0) == 0.0


def test_the_one_that_tries_closes_it_or_opens_it_for_as_long_again() -> None:
    breaker = _opened()
    assert breaker.admit(13.0)
    assert breaker.failed(14.0)
    assert breaker.state(23.9) == "open"
    assert breaker.admit(24.0)
    assert breaker.succeeded()
    assert breaker.state(24.0) == "closed"
    assert breaker.admit(24.0)
    assert breaker.admit(24.0)


def test_one_that_is_cancelled_while_it_tries_leaves_the_place_to_the_next() -> None:
    breaker = _opened()
    assert breaker.admit(13.0)
    breaker.abandoned()
    assert breaker.state(13.0) == "half_open"
    assert breaker.admit(13.0)


def test_chats_that_began_before_it_opened_do_not_keep_it_open_longer() -> None:
    breaker = _opened()
    assert not breaker.failed(9.0)
    assert breaker.state(13.0) == "half_open"


def test_a_chat_abandoned_while_it_is_closed_changes_nothing() -> None:
    breaker = Breaker(1, 10.0)
    assert breaker.admit(0.0)
    breaker.abandoned()
    assert breaker.state(0.0) == "closed"
    assert breaker.failures == 0
