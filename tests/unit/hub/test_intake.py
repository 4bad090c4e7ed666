"""How many large requests are in memory at once, and whose."""

import pytest

from core.hub.errors import HubError
from core.hub.intake import LargeRequests


def enter(large: LargeRequests, user: str) -> bool:
    try:
        large.enter(user)
    except HubError as error:
        return (error.status, error.code, error.headers["Retry-After"]) != (429, "overloaded", "2")
    return True


def test_a_user_has_three_while_there_is_room() -> None:
    large = LargeRequests()
    assert [enter(large, "alice") for _ in range(4)] == [True, True, True, False]
    assert enter(large, "bob")
    large.leave("alice")
    assert enter(large, "alice")


def test_once_half_are_taken_only_who_has_none_gets_one() -> None:
    large = LargeRequests()
    for user in ("mallory", "marvin"):
        assert [enter(large, user) for _ in range(3)] == [True] * 3
    assert [enter(large, "max") for _ in range(2)] == [True, False]
    others = ["alice", "bob", "carl", "dora", "eve"]
    assert [enter(large, user) for user in others] == [True] * 5
    assert not enter(large, "fred")
    large.leave("mallory")
    assert not enter(large, "mallory")
    assert enter(large, "fred")


@pytest.mark.parametrize("user", ["alice", "bob"])
def test_what_is_counted_out_is_counted_no_more(user: str) -> None:
    large = LargeRequests()
    for _ in range(30):
        large.enter(user)
        large.leave(user)
    assert [enter(large, "carl") for _ in range(3)] == [True] * 3
