"""The user actor over a real edge, with a worker that is played by the test."""

import itertools
import queue
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any

import pykka
import pytest

from actors.approvals import ApprovalRules
from actors.base import Ref, ask, tell
from actors.channel import Bounds
from actors.edge import Edge
from actors.fairness import PaceLimits
from actors.observer import Silent
from actors.service import Mode, RequestKey, TurnSpec, VerbRequest
from actors.supervisor import stop_and_wait
from actors.user import UserActor
from actors.user_messages import CancelTurn, JailExited, JailStarted, Leave, StartTurn
from jail.wire.connection import Asked, CancelCame, Connection, Event, Failed, Replied
from jail.wire.frames import MAX_FRAME_BYTES
from jail.wire.schema import (
    Agent,
    ChatDelta,
    ChatEnd,
    Delta,
    Done,
    Failure,
    History,
    LogLine,
    Message,
    ProviderChat,
    SessionLoad,
    ToolCall,
    TurnEnd,
)
from jail.wire.zmtp import Zmtp
from tests.fakes.approval_book import FakeBook
from tests.fakes.handle import FakeHandle
from tests.fakes.sink import FakeSink

_LIMIT_S = 10.0


class Worker:
    """The far end of a jail's edge: our own ZMTP and Connection over a socket pair."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.settimeout(_LIMIT_S)
        self.zmtp = Zmtp(MAX_FRAME_BYTES)
        self.connection = Connection("worker", 0, 1e9)
        self.events: list[Event] = []
        sock.sendall(self.zmtp.outgoing())

    def pump(self) -> None:
        data = self.sock.recv(65_536)
        assert data, "core closed the edge"
        for payload in self.zmtp.feed(data):
            self.events += self.connection.receive(payload)
        self.sock.sendall(self.zmtp.outgoing())

    def until(self, kind: type[Any]) -> Any:
        while not (found := [e for e in self.events if isinstance(e, kind)]):
            self.pump()
        self.events.remove(found[0])
        return found[0]

    def say(self, data: bytes) -> None:
        self.sock.sendall(self.zmtp.encode(data))

    def hello(self) -> None:
        while not self.zmtp.ready:
            self.pump()
        self.say(self.connection.hello("played"))


@dataclass
class FakeJails:
    """Implements actors.user.Jails: hands out socket pairs and reports every end."""

    workers: "queue.Queue[Worker]"
    killed: "queue.Queue[int]"
    owner: Ref | None = None
    uses: "queue.Queue[tuple[int, bool]]" = field(default_factory=queue.Queue)

    def launch(self, life: int, user: str, owner: Ref, request: str) -> None:
        mine, far = socket.socketpair()
        self.owner = owner
        self.workers.put(Worker(far))
        owner.tell(JailStarted(life, mine))

    def used(self, life: int, busy: bool) -> None:
        self.uses.put((life, busy))

    def kill(self, life: int, fault: str | None) -> None:
        self.killed.put(life)
        assert self.owner is not None
        tell(self.owner, JailExited(life, "signal 9"))  # one that has ended does not hear it


class FakeService:
    """Implements actors.service.Service: keeps what it is told."""

    def __init__(self) -> None:
        self.requests: queue.Queue[VerbRequest] = queue.Queue()
        self.credits: queue.Queue[tuple[RequestKey, int]] = queue.Queue()
        self.cancels: queue.Queue[RequestKey] = queue.Queue()
        self.threads: queue.Queue[str] = queue.Queue()
        self.busy_s = 0.0  # of CPU time, in each call

    def serve(self, request: VerbRequest) -> None:
        self._work()
        self.threads.put(threading.current_thread().name)
        self.requests.put(request)

    def credit(self, key: RequestKey, count: int) -> None:
        self._work()
        self.credits.put((key, count))

    def cancel(self, key: RequestKey) -> None:
        self.cancels.put(key)

    def _work(self) -> None:
        until_s = time.thread_time() + self.busy_s
        while time.thread_time() < until_s:
            pass


class House:
    """Alice's actor and everything around it."""

    def __init__(self, edge: Edge) -> None:
        self.edge = edge
        self.jails = FakeJails(queue.Queue(), queue.Queue())
        self.service = FakeService()
        self.book = FakeBook()
        self.modes: dict[str, Mode] = {}
        lives = itertools.count(1)
        self.bounds = Bounds()
        self.ref: Ref = UserActor.start(
            "user-alice",
            None,
            Silent(),
            user="alice",
            edge=edge,
            bounds=lambda: self.bounds,
            jails=self.jails,
            services=dict.fromkeys(("provider.chat", "session.load"), self.service),
            mode=lambda verb: self.modes.get(verb, "on"),
            book=self.book,
            rules=ApprovalRules(),
            next_life=lambda: next(lives),
            start_timeout_s=_LIMIT_S,
        )

    def spec(self, turn: str = "1", user: str = "alice", accept: bool = True) -> TurnSpec:
        agent = Agent("assistant", "", "builtin", "assistant")
        return TurnSpec("turn_" + turn * 16, FakeHandle(user), agent, FakeSink(accept), None)

    def warm(self, spec: TurnSpec) -> tuple[Worker, int]:
        self.ref.tell(StartTurn(spec))
        worker = self.jails.workers.get(timeout=_LIMIT_S)
        worker.hello()
        return worker, worker.until(Asked).id


@pytest.fixture
def house() -> Iterator[House]:
    edge = Edge()
    edge.start()
    house = House(edge)
    yield house
    if house.ref.is_alive():
        stop_and_wait(house.ref, _LIMIT_S)
    while not house.jails.workers.empty():
        house.jails.workers.get().sock.close()
    edge.stop()


def sink(spec: TurnSpec) -> FakeSink:
    assert isinstance(spec.sink, FakeSink)
    return spec.sink


def ended(spec: TurnSpec) -> TurnEnd | Failure:
    assert sink(spec).ended.wait(_LIMIT_S)
    return sink(spec).outcome


def test_a_turn_runs_over_the_real_edge(house: House) -> None:
    spec = house.spec()
    worker, turn = house.warm(spec)
    chat, data = worker.connection.request(ProviderChat(spec.turn, (Message("user", "hi"),)))
    worker.say(data)
    request = house.service.requests.get(timeout=_LIMIT_S)
    assert (request.handle.user, request.life, request.origin, request.turn) == ("alice", 1, "agent", spec)
    request.reply.item(ChatDelta("ho"))
    request.reply.done(ChatEnd("stop"))
    assert worker.until(Replied) == Replied(chat, ChatEnd("stop"))
    for _ in range(40):
        while worker.connection.credit(turn) == 0:
            worker.pump()
        worker.say(worker.connection.item(turn, Delta("ho")))
    worker.say(worker.connection.reply(turn, TurnEnd("stop")))
    assert ended(spec) == TurnEnd("stop")
    assert sink(spec).items == [Delta("ho")] * 40
    assert house.jails.uses.get(timeout=_LIMIT_S) == (1, True)
    assert house.jails.uses.get(timeout=_LIMIT_S) == (1, False)
    worker.sock.close()


def test_a_frame_that_may_take_long_is_not_checked_where_every_jail_waits(house: House) -> None:
    spec = house.spec()
    worker, _ = house.warm(spec)
    for text, thread in (("short", "edge"), ("long" * 1_025, "edge-aside_0")):
        worker.say(worker.connection.request(ProviderChat(spec.turn, (Message("user", text),)))[1])
        assert house.service.threads.get(timeout=_LIMIT_S) == thread
        house.service.requests.get(timeout=_LIMIT_S).reply.done(ChatEnd("stop"))
        worker.until(Replied)
    worker.sock.close()


def test_a_log_that_accepts_nothing_stops_the_worker_at_its_window(house: House) -> None:
    spec = house.spec(accept=False)
    worker, turn = house.warm(spec)
    for _ in range(16):
        worker.say(worker.connection.item(turn, Delta("x")))
    assert worker.connection.credit(turn) == 0
    while len(sink(spec).waiting) < 16:
        ask(house.ref, CancelTurn("turn_" + "9" * 16), _LIMIT_S)
    for accepted in sink(spec).waiting[:4]:
        accepted()
    while worker.connection.credit(turn) < 4:
        worker.pump()
    worker.sock.close()


def test_a_spec_of_another_user_is_refused_and_is_loud(house: House) -> None:
    spec = house.spec(user="bob")
    house.ref.tell(StartTurn(spec))
    outcome = ended(spec)
    assert isinstance(outcome, Failure)
    assert outcome.code == "internal"
    with pytest.raises(pykka.ActorDeadError):
        ask(house.ref, CancelTurn("turn_" + "9" * 16), _LIMIT_S)
    assert house.jails.workers.empty()


def test_a_fault_kills_the_jail_and_the_next_turn_gets_a_new_one(house: House) -> None:
    spec = house.spec()
    worker, _ = house.warm(spec)
    worker.say(b"\xc1nonsense")
    assert "encoding" in ended(spec).message  # type: ignore[union-attr]
    assert house.jails.killed.get(timeout=_LIMIT_S) == 1
    assert worker.sock.recv(65_536) == b""
    again = house.spec("2")
    other, turn = house.warm(again)
    other.say(other.connection.reply(turn, TurnEnd("stop")))
    assert ended(again) == TurnEnd("stop")
    worker.sock.close()
    other.sock.close()


def test_a_worker_that_floods_without_a_pause_is_ended_with_its_reason(house: House) -> None:
    house.bounds = Bounds(pace=PaceLimits(per_s=100, burst=50, patience_s=0.5))
    spec = house.spec()
    worker, _ = house.warm(spec)
    with closing(worker.sock):
        with suppress(ConnectionError):  # it is ended in the midst of it
            for _ in range(10_000):
                worker.say(worker.connection.request(LogLine(spec.turn, "info", "x", ""))[1])
        outcome = ended(spec)
    assert isinstance(outcome, Failure)
    assert (outcome.code, "(rate)" in outcome.message) == ("worker", True)
    house.bounds = Bounds(pace=PaceLimits(per_s=2_000, burst=2_000, patience_s=30))
    again = house.spec("2")
    other, turn = house.warm(again)
    with closing(other.sock):
        for number in range(1_000):  # as many, and honestly: one after another
            other.say(other.connection.request(LogLine(again.turn, "info", "x", ""))[1])
            other.until(Failed if number >= 50 else Replied)
        other.say(other.connection.reply(turn, TurnEnd("stop")))
        assert ended(again) == TurnEnd("stop")


@pytest.mark.parametrize("what", ["serve", "credit", "history"])
def test_a_jail_pays_for_what_a_small_frame_has_done(house: House, what: str) -> None:
    house.bounds = Bounds(pace=PaceLimits(per_s=2_000, burst=200, patience_s=30))
    spec = house.spec()
    worker, _ = house.warm(spec)
    with closing(worker.sock):
        house.service.busy_s = 0.02 if what == "serve" else 0.0
        asked, data = worker.connection.request(SessionLoad(spec.turn))
        worker.say(data)
        reply = house.service.requests.get(timeout=_LIMIT_S).reply
        if what == "credit":
            house.service.busy_s = 0.02
            worker.say(worker.connection.grant(asked, 1))
            house.service.credits.get(timeout=_LIMIT_S)
        elif what == "history":
            called = Message("assistant", "", (ToolCall("call", "tool", "{}"),) * 64)
            for _ in range(16):
                reply.item(History((called,) * 64))
        reply.done(Done())
        assert worker.until(Replied).id == asked
        assert house.edge.served()["alice"].slowed == 0
        worker.say(worker.connection.request(LogLine(spec.turn, "info", "x", ""))[1])
        worker.until(Replied)
        assert house.edge.served()["alice"].slowed == 1


def test_a_worker_that_dies_gives_one_clear_error(house: House) -> None:
    spec = house.spec()
    worker, _ = house.warm(spec)
    worker.sock.close()
    outcome = ended(spec)
    assert isinstance(outcome, Failure)
    assert outcome.code == "worker"


def test_cancel_reaches_worker_and_service_and_a_deaf_worker_is_killed(house: House) -> None:
    spec = house.spec()
    worker, turn = house.warm(spec)
    _, data = worker.connection.request(ProviderChat(spec.turn, (Message("user", "hi"),)))
    worker.say(data)
    key = house.service.requests.get(timeout=_LIMIT_S).key
    house.ref.tell(CancelTurn(spec.turn))
    assert house.service.cancels.get(timeout=_LIMIT_S) == key
    assert worker.until(CancelCame).id == turn
    assert ended(spec) == Failure("cancelled", "the turn was cancelled")  # after its two seconds
    assert house.jails.killed.get(timeout=_LIMIT_S) == 1
    worker.sock.close()


def test_leaving_drains_the_jail_and_ends_the_actor(house: House) -> None:
    spec = house.spec()
    worker, turn = house.warm(spec)
    worker.say(worker.connection.reply(turn, TurnEnd("stop")))
    ended(spec)
    house.ref.tell(Leave())
    asked = worker.until(Asked)
    assert asked.verb == "drain"
    worker.say(worker.connection.reply(asked.id, Done()))
    worker.sock.close()
    house.ref.actor_stopped.wait(_LIMIT_S)
    assert not house.ref.is_alive()


def test_stopping_the_actor_takes_the_jail_along_and_fails_its_turns(house: House) -> None:
    spec = house.spec()
    worker, _ = house.warm(spec)
    stop_and_wait(house.ref, _LIMIT_S)
    assert isinstance(ended(spec), Failure)
    assert house.jails.killed.get(timeout=_LIMIT_S) == 1
    worker.sock.close()


@pytest.mark.parametrize("crash", [False, True], ids=["told to stop", "by a bug"])
def test_an_actor_that_ends_leaves_no_turn_waiting(house: House, crash: bool) -> None:
    waiting, foreign = house.spec(), house.spec("2", user="bob")
    house.ref.tell(StartTurn(waiting))
    worker = house.jails.workers.get(timeout=_LIMIT_S)
    worker.pump()  # it is attached now, and never says hello: the turn waits
    if crash:
        house.ref.tell(StartTurn(foreign))
        assert isinstance(ended(foreign), Failure)
    else:
        stop_and_wait(house.ref, _LIMIT_S)
    end = ended(waiting)
    assert isinstance(end, Failure)
    assert end.code == "unavailable"
    assert house.jails.killed.get(timeout=_LIMIT_S) == 1
    worker.sock.close()
