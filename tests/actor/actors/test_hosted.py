"""Actors on the edge's thread: Pykka's rules hold for them, and long work does not hold up the others."""

import queue
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pykka
import pytest

from actors.base import Actor, Exited, Ref, ask, tell, void
from actors.edge import Edge
from actors.hosted import HostedActor
from actors.observer import Silent
from actors.supervisor import stop_and_wait

_LIMIT_S = 20.0


class Parent(Actor):
    """Keeps what it is told."""

    def __init__(self, told: "queue.Queue[Any]") -> None:
        super().__init__("parent")
        self._told = told

    def handle(self, message: Any) -> None:
        self._told.put(message)


class Hosted(HostedActor):
    """Calls what it is told, and says who handled what where; ``long`` messages take long."""

    def __init__(self, edge: Edge, parent: Ref | None = None, refuses: bool = False) -> None:
        super().__init__("hosted", parent, Silent(), edge)
        self._refuses = refuses
        self.said: queue.Queue[tuple[str, Any]] = queue.Queue()
        self.torn_down = 0

    def setup(self) -> None:
        if self._refuses:
            raise OSError("not today")

    def takes_long(self, message: Any) -> bool:
        return isinstance(message, tuple) and message[:1] == ("long",)

    def handle(self, message: Any) -> Any:
        if isinstance(message, tuple):
            message = message[1]
        found = message() if callable(message) else message
        self.said.put((threading.current_thread().name, found))
        return found

    def teardown(self) -> None:
        self.torn_down += 1


@pytest.fixture
def edge() -> Iterator[Edge]:
    edge = Edge()
    edge.start()
    yield edge
    for ref in pykka.ActorRegistry.get_by_class(Hosted):
        stop_and_wait(ref, _LIMIT_S)
    edge.stop()


@pytest.fixture
def told() -> Iterator["queue.Queue[Any]"]:
    yield queue.Queue()
    for ref in pykka.ActorRegistry.get_by_class(Parent):
        stop_and_wait(ref, _LIMIT_S)


def actor_of(ref: Ref) -> Hosted:
    found = ref._actor_weakref()
    assert isinstance(found, Hosted)
    return found


def stay(begun: threading.Event, hold: threading.Event) -> bool:
    begun.set()
    return hold.wait(_LIMIT_S)


def boom() -> None:
    raise ValueError("boom")


def test_hundreds_share_one_thread_and_each_keeps_its_order(edge: Edge) -> None:
    before = threading.active_count()
    actors = [actor_of(Hosted.start(edge)) for _ in range(300)]

    def tell_all(first: int) -> None:
        for number in range(first, first + 20):
            for actor in actors:
                tell(actor.actor_ref, number)

    threads = [threading.Thread(target=tell_all, args=(first,)) for first in (0, 100, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_LIMIT_S)
    for actor in actors:
        found = [actor.said.get(timeout=_LIMIT_S) for _ in range(60)]
        assert {thread for thread, _ in found} == {"edge"}
        for first in (0, 100, 200):
            from_one = [number for _, number in found if first <= number < first + 20]
            assert from_one == list(range(first, first + 20))
    assert threading.active_count() == before


def test_it_answers_and_an_error_under_ask_is_the_askers(edge: Edge) -> None:
    ref = Hosted.start(edge)
    assert ask(ref, "hello", _LIMIT_S) == "hello"
    with pytest.raises(ValueError, match="boom"):
        ask(ref, boom, _LIMIT_S)
    assert ask(ref, "again", _LIMIT_S) == "again"


def test_an_error_under_tell_ends_it_and_the_host_goes_on(edge: Edge, told: "queue.Queue[Any]") -> None:
    ref, other = Hosted.start(edge, Parent.start(told)), Hosted.start(edge)
    actor = actor_of(ref)
    tell(ref, boom)
    exited = told.get(timeout=_LIMIT_S)
    assert isinstance(exited, Exited)
    assert (exited.ref, type(exited.error), actor.torn_down) == (ref, ValueError, 1)
    assert not tell(ref, "too late")
    assert ask(other, "still here", _LIMIT_S) == "still here"


def test_what_is_no_exception_ends_that_actor_alone(edge: Edge, told: "queue.Queue[Any]") -> None:
    ref, other = Hosted.start(edge, Parent.start(told)), Hosted.start(edge)
    tell(ref, lambda: sys.exit(3))
    exited = told.get(timeout=_LIMIT_S)
    assert (str(exited.error), ref.is_alive()) == ("hosted ended on SystemExit(3)", False)
    assert ask(other, "still here", _LIMIT_S) == "still here"


def test_what_fails_aside_is_as_loud_as_on_the_edge_itself() -> None:
    crashes: queue.Queue[BaseException] = queue.Queue()
    edge = Edge(on_crash=crashes.put)
    edge.start()
    edge.aside(boom)
    assert isinstance(crashes.get(timeout=_LIMIT_S), ValueError)
    edge.stop()


def test_a_setup_that_fails_is_told_and_nothing_is_handled(edge: Edge, told: "queue.Queue[Any]") -> None:
    hold = threading.Event()
    edge.soon(lambda: void(hold.wait(_LIMIT_S)))
    ref = Hosted.start(edge, Parent.start(told), refuses=True)
    actor = actor_of(ref)
    waiting = ref.ask("early", block=False)
    hold.set()
    exited = told.get(timeout=_LIMIT_S)
    assert (str(exited.error), actor.torn_down) == ("not today", 1)
    with pytest.raises(pykka.ActorDeadError):
        waiting.get(timeout=_LIMIT_S)
    assert actor.said.empty()


def test_whoever_asks_behind_a_stop_is_told_so(edge: Edge) -> None:
    ref = Hosted.start(edge)
    hold = threading.Event()
    tell(ref, lambda: hold.wait(_LIMIT_S))
    stopped = ref.stop(block=False)
    behind = [ref.ask(("long", number), block=False) for number in range(50)]
    hold.set()
    assert stopped.get(timeout=_LIMIT_S)
    for asked in behind:
        with pytest.raises(pykka.ActorDeadError):
            asked.get(timeout=_LIMIT_S)


def test_whoever_asks_while_it_ends_is_told_so(edge: Edge) -> None:
    """Its inbox takes what was on its way when it stopped; a Pykka thread would be gone by then."""
    ref = Hosted.start(edge)
    actor = actor_of(ref)
    stop_and_wait(ref, _LIMIT_S)
    late = pykka.ThreadingFuture()  # type: ignore[var-annotated]
    actor.actor_inbox.put(pykka._envelope.Envelope("late", reply_to=late))
    with pytest.raises(pykka.ActorDeadError):
        late.get(timeout=_LIMIT_S)
    assert actor.said.empty()


def test_what_takes_long_is_handled_aside_in_its_place_while_the_others_go_on(edge: Edge) -> None:
    slow, quick = Hosted.start(edge), Hosted.start(edge)
    hold = threading.Event()
    tell(slow, 1)
    tell(slow, ("long", lambda: hold.wait(_LIMIT_S)))
    tell(slow, 3)
    assert actor_of(slow).said.get(timeout=_LIMIT_S) == ("edge", 1)
    assert ask(quick, "meanwhile", _LIMIT_S) == "meanwhile"
    assert actor_of(slow).said.empty()
    hold.set()
    assert actor_of(slow).said.get(timeout=_LIMIT_S) == ("edge-aside_0", True)
    assert actor_of(slow).said.get(timeout=_LIMIT_S)[1] == 3
    where = ""
    while where != "edge":  # where it ends aside, it comes back
        tell(slow, 4)
        where = actor_of(slow).said.get(timeout=_LIMIT_S)[0]


def test_one_at_a_time_is_aside(edge: Edge) -> None:
    first, second = Hosted.start(edge), Hosted.start(edge)
    hold = threading.Event()
    tell(first, ("long", lambda: hold.wait(_LIMIT_S)))
    tell(second, ("long", "second"))
    assert ask(Hosted.start(edge), "others", _LIMIT_S) == "others"
    assert actor_of(second).said.empty()
    hold.set()
    assert actor_of(second).said.get(timeout=_LIMIT_S) == ("edge-aside_0", "second")


def test_who_has_much_to_do_lets_the_others_go_first_now_and_then(edge: Edge) -> None:
    busy, other = Hosted.start(edge), Hosted.start(edge)
    begun, hold = threading.Event(), threading.Event()
    tell(busy, lambda: stay(begun, hold))
    assert begun.wait(_LIMIT_S)
    handled = actor_of(busy).said
    for number in range(1_000):
        tell(busy, number)
    tell(other, handled.qsize)
    hold.set()
    assert actor_of(other).said.get(timeout=_LIMIT_S)[1] < 100
    assert [handled.get(timeout=_LIMIT_S)[1] for _ in range(1_001)] == [True, *range(1_000)]


def test_who_has_much_to_do_aside_does_not_keep_the_next_one_waiting_for_all_of_it(edge: Edge) -> None:
    busy, other = Hosted.start(edge), Hosted.start(edge)
    begun, hold = threading.Event(), threading.Event()
    tell(busy, ("long", lambda: stay(begun, hold)))
    assert begun.wait(_LIMIT_S)
    handled = actor_of(busy).said
    for number in range(20):
        tell(busy, ("long", number))
    tell(other, ("long", handled.qsize))
    assert ask(Hosted.start(edge), "the other waits by now", _LIMIT_S)
    hold.set()
    assert actor_of(other).said.get(timeout=_LIMIT_S)[1] < 5
    assert [handled.get(timeout=_LIMIT_S)[1] for _ in range(21)] == [True, *range(20)]


def test_it_can_end_aside(edge: Edge, told: "queue.Queue[Any]") -> None:
    ref = Hosted.start(edge, Parent.start(told))
    actor = actor_of(ref)
    tell(ref, ("long", boom))
    assert isinstance(told.get(timeout=_LIMIT_S).error, ValueError)
    assert (actor.torn_down, ref.is_alive()) == (1, False)


def test_an_edge_that_has_stopped_runs_nothing() -> None:
    edge = Edge()
    edge.start()
    edge.stop()
    ran: list[int] = []
    edge.soon(lambda: ran.append(1))
    edge.aside(lambda: ran.append(2))
    assert ran == []
