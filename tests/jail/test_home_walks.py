"""Homes are walked by a child, which may be slow, or for nobody any more."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from jail.host import homes
from jail.host.homes import Homes
from jail.host.loop import Loop
from jail.host.messages import HomeMeasured
from jail.host.profile import Limits, user_paths

LIMITS = Limits(disk_bytes=1 << 30)
WAIT_S = 30.0


@dataclass
class Walks:
    """Homes on a loop of their own, and what they said."""

    directory: Path
    loop: Loop = field(default_factory=Loop)
    told: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.homes = Homes(self.loop, self.directory, self._tell, self._late)

    def run(self) -> None:
        """Until something is said."""
        limit = self.loop.later(WAIT_S, lambda: pytest.fail("nothing was said"))
        self.loop.run()
        limit.cancel()

    def _tell(self, home: HomeMeasured, _: Limits) -> None:
        self.told.append(home.user)
        self.loop.stop()

    def _late(self, user: str) -> None:
        self.late.append(user)
        self.loop.stop()


@pytest.fixture
def walks(tmp_path: Path) -> Iterator[Walks]:
    for user in ("alice", "bob"):
        user_paths(tmp_path, user).home.mkdir(parents=True)
    walks = Walks(tmp_path)
    yield walks
    walks.homes.close()
    walks.loop.close()
    # the walkers that are killed now are reaped as every test's children are; others have some of their own


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alice's home takes for ever."""
    plain = homes.weigh

    def weigh(home: Path, limits: Limits) -> tuple[int, int, bool]:
        if "alice" in home.parts:
            time.sleep(600.0)
        return plain(home, limits)

    monkeypatch.setattr(homes, "weigh", weigh)


@pytest.mark.parametrize("user", ["alice", "bob"])
def test_a_home_that_takes_too_long_is_named_and_one_that_does_not_is_told(
    walks: Walks, slow: None, monkeypatch: pytest.MonkeyPatch, user: str
) -> None:
    if user == "alice":
        monkeypatch.setattr(homes, "_LIMIT_S", 0.1)
    walks.homes.look(user, LIMITS)
    walks.run()
    assert (walks.told, walks.late) == (([], ["alice"]) if user == "alice" else (["bob"], []))


def test_the_walk_of_a_user_who_is_removed_is_given_up_and_the_next_begins(walks: Walks, slow: None) -> None:
    walks.homes.look("alice", LIMITS)
    walks.homes.look("bob", LIMITS)
    walks.homes.forget("alice")
    walks.run()
    assert (walks.told, walks.late) == (["bob"], [])
