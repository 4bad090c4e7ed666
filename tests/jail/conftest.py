"""A house for all tests of a module, and jails in it."""

from collections.abc import Callable, Iterator

import pytest

from tests.fakes.jails import House, ShellJail

Enter = Callable[..., ShellJail]


@pytest.fixture(scope="session")
def house() -> Iterator[House]:
    """One data directory; users are added by the tests."""
    made = House()
    made.add("alice")
    made.add("bob")
    yield made
    made.close()


@pytest.fixture(params=["fork", "exec"], scope="module")
def kind(request: pytest.FixtureRequest) -> str:
    """How jails are started."""
    return str(request.param)


@pytest.fixture
def enter(house: House, kind: str) -> Iterator[Enter]:
    """Start jails that end with the test."""
    jails: list[ShellJail] = []

    def start(user: str = "alice", **options: object) -> ShellJail:
        jails.append(ShellJail(house, user, **({"start": kind} | options)))  # type: ignore[arg-type]
        return jails[-1]

    yield start
    for jail in jails:
        jail.end()


@pytest.fixture(scope="module")
def alice(house: House, kind: str) -> Iterator[ShellJail]:
    """Alice's jail, for all tests of a module that leave nothing running in it."""
    with ShellJail(house, "alice", start=kind) as jail:
        yield jail
