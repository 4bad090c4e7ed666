"""Who sends wrong tokens waits, longer each time; who has the right one does not wait for others."""

import pytest

from core.config import AccessSection
from core.hub.logins import FailedLogins
from core.vault.tokens import make_token

LIMITS = AccessSection(free_failures=3, first_wait_s=2.0, longest_wait_s=60.0, forget_s=600.0)


def _fail(logins: FailedLogins, address: str, times: int, token: str = "wrong") -> float:
    wait_s = 0.0
    for _ in range(times):
        wait_s = logins.failed(address, token, 100.0)
    return wait_s


def test_some_failures_are_free_and_then_waits_double_up_to_the_longest() -> None:
    logins = FailedLogins(LIMITS)
    assert _fail(logins, "192.0.2.1", 3) == 0.0
    assert logins.wait_s("192.0.2.1", "x", 100.0) == 0.0
    waits = [logins.failed("192.0.2.1", "wrong", 100.0) for _ in range(7)]
    assert waits == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    assert logins.wait_s("192.0.2.1", "x", 130.0) == 30.0
    assert logins.wait_s("192.0.2.1", "x", 160.0) == 0.0
    assert _fail(logins, "192.0.2.1", 1_000) == 60.0  # no overflow, however long it goes on


def test_another_address_does_not_wait() -> None:
    logins = FailedLogins(LIMITS)
    token = make_token().token
    wrong = token[:-1] + ("a" if token[-1] != "a" else "b")
    assert _fail(logins, "192.0.2.1", 9, wrong) > 0
    assert logins.wait_s("192.0.2.1", token, 100.0) > 0
    assert logins.wait_s("192.0.2.2", token, 100.0) == 0.0


def test_a_token_that_was_right_from_an_address_is_let_in_from_there_while_others_wait() -> None:
    logins = FailedLogins(LIMITS)
    logins.succeeded("192.0.2.1", "good")
    _fail(logins, "192.0.2.1", 9)
    assert logins.wait_s("192.0.2.1", "good", 100.0) == 0.0
    assert logins.wait_s("192.0.2.1", "other", 100.0) > 0
    logins.failed("192.0.2.1", "good", 100.0)  # revoked meanwhile: from now on like any other
    assert logins.wait_s("192.0.2.1", "good", 100.0) > 0


def test_guessing_one_token_from_many_addresses_gains_one_try_each() -> None:
    logins = FailedLogins(LIMITS)
    wrong = make_token().token
    assert [logins.failed(f"192.0.2.{n}", wrong, 100.0) for n in range(5)] == [0.0, 0.0, 0.0, 2.0, 2.0]
    # an address of its own with another token is free as ever
    assert logins.failed("198.51.100.1", make_token().token, 100.0) == 0.0


def test_success_forgives_nothing_and_time_does() -> None:
    logins = FailedLogins(LIMITS)
    _fail(logins, "192.0.2.1", 3)
    logins.succeeded("192.0.2.1", "good")
    assert logins.failed("192.0.2.1", "wrong", 100.0) == 2.0
    assert logins.failed("192.0.2.1", "wrong", 701.0) == 0.0


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
    ],
)
def test_addresses_of_one_customer_count_as_one(one: str, other: str, same: bool) -> None:
    logins = FailedLogins(LIMITS)
    _fail(logins, one, 4)
    assert (logins.wait_s(other, "x", 100.0) > 0) is same


def test_memory_is_bounded_and_who_failed_last_is_remembered() -> None:
    logins = FailedLogins(LIMITS, most=50)
    for n in range(1_000):
        logins.failed(f"10.0.{n // 250}.{n % 250}", make_token().token, 100.0)
        logins.succeeded(f"10.1.{n // 250}.{n % 250}", "good")
    assert (len(logins._addresses), len(logins._ids), len(logins._good)) == (50, 50, 50)
    _fail(logins, "10.0.3.249", 3)
    assert logins.wait_s("10.0.3.249", "x", 100.0) > 0
