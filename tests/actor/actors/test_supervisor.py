"""Supervision, with children that fail on purpose."""

import queue
import random
from collections.abc import Iterator
from typing import Any

import pykka
import pytest

from actors.base import Actor, Exited, Ref, ask
from actors.edge import Edge
from actors.observer import Silent
from actors.restart import Lifetime, RestartPolicy
from actors.supervisor import (
    ChildSpec,
    FindChild,
    ListChildren,
    StartChild,
    Supervisor,
    stop_and_wait,
)

_LIMIT_S = 10.0


class Child(Actor):
    """Says what happens to it, and fails when told."""

    def __init__(self, name: str, parent: Ref, said: "queue.Queue[str]", fail_setup: bool = False) -> None:
        super().__init__(name, parent, Silent())
        self._said = said
        self._fail_setup = fail_setup

    def setup(self) -> None:
        self._said.put(f"{self.name} up")
        if self._fail_setup:
            raise RuntimeError("cannot start")

    def handle(self, message: Any) -> Any:
        if message == "fail":
            raise RuntimeError("as told")
        return message

    def teardown(self) -> None:
        self._said.put(f"{self.name} down")


class Root(Actor):
    """A parent that keeps what it is told."""

    def __init__(self, told: "queue.Queue[Any]") -> None:
        super().__init__("root")
        self._told = told

    def handle(self, message: Any) -> None:
        self._told.put(message)


@pytest.fixture
def edge() -> Iterator[Edge]:
    edge = Edge("timers")
    edge.start()
    yield edge
    edge.stop()


@pytest.fixture
def told() -> "queue.Queue[Any]":
    return queue.Queue()


@pytest.fixture
def root(told: "queue.Queue[Any]") -> Iterator[Ref]:
    ref = Root.start(told)
    yield ref
    stop_and_wait(ref, _LIMIT_S)


def spec(name: str, said: "queue.Queue[str]", lifetime: Lifetime = "permanent", **kw: Any) -> ChildSpec:
    return ChildSpec(name, lambda n, parent: Child.start(n, parent, said, **kw), lifetime)


def policy() -> RestartPolicy:
    return RestartPolicy(most=3, base_s=0.001, cap_s=0.002, rng=random.Random(1))


def says(said: "queue.Queue[str]", count: int) -> list[str]:
    return [said.get(timeout=_LIMIT_S) for _ in range(count)]


def test_children_start_in_order_and_stop_in_reverse(edge: Edge, root: Ref) -> None:
    said: queue.Queue[str] = queue.Queue()
    ref = Supervisor.start("s", root, Silent(), edge, (spec("a", said), spec("b", said)), policy())
    assert says(said, 2) == ["a up", "b up"]
    stop_and_wait(ref, _LIMIT_S)
    assert says(said, 2) == ["b down", "a down"]


def test_a_failed_child_is_torn_down_and_started_again_under_its_name(edge: Edge, root: Ref) -> None:
    said: queue.Queue[str] = queue.Queue()
    ref = Supervisor.start("s", root, Silent(), edge, (spec("a", said),), policy())
    first = ask(ref, FindChild("a"), _LIMIT_S)
    first.tell("fail")
    assert says(said, 3) == ["a up", "a down", "a up"]
    second = ask(ref, FindChild("a"), _LIMIT_S)
    assert second != first
    assert ask(second, "hello", _LIMIT_S) == "hello"
    stop_and_wait(ref, _LIMIT_S)


def test_a_temporary_child_stays_gone_and_can_be_started_anew(edge: Edge, root: Ref) -> None:
    said: queue.Queue[str] = queue.Queue()
    ref = Supervisor.start("s", root, Silent(), edge, (), policy())
    child = ask(ref, StartChild(spec("a", said, "temporary")), _LIMIT_S)
    assert ask(ref, StartChild(spec("a", said, "temporary")), _LIMIT_S) == child
    stop_and_wait(child, _LIMIT_S)
    assert says(said, 2) == ["a up", "a down"]
    assert ask(ref, ListChildren(), _LIMIT_S) == []
    assert ask(ref, StartChild(spec("a", said, "temporary")), _LIMIT_S) != child
    stop_and_wait(ref, _LIMIT_S)


def test_a_child_that_never_starts_escalates_to_the_parent(
    edge: Edge, root: Ref, told: "queue.Queue[Any]"
) -> None:
    said: queue.Queue[str] = queue.Queue()
    ref = Supervisor.start("s", root, Silent(), edge, (spec("a", said, fail_setup=True),), policy())
    exited = told.get(timeout=_LIMIT_S)
    assert isinstance(exited, Exited)
    assert exited.ref == ref
    assert "ended 4 times" in str(exited.error)
    with pytest.raises(pykka.ActorDeadError):
        ask(ref, ListChildren(), _LIMIT_S)
