"""A user who is deleted while a turn of theirs is about to begin, or to begin again."""

import asyncio
import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.base import Actor, Ref, ask
from actors.edge import Edge
from actors.observer import Observer, Silent
from actors.service import TurnSpec
from actors.supervisor import ListChildren, stop_and_wait
from actors.user_messages import StartTurn
from core.config import HubSection, SessionsSection
from core.hub.admission import Admission
from core.hub.errors import HubError
from core.hub.turns import GONE, Starter
from core.metrics import Metrics
from core.sessions import Finished, SessionsService, Storage
from core.turns import RunTurn, Users
from core.vault.handle import UserHandle
from jail.wire.schema import Agent, Failure, Message, Sampling, TurnEnd
from tests.fakes.scripted_turns import ScriptedTurns
from tests.fakes.sink import FakeSink
from tests.fakes.token_book import handle_of

WAIT_S = 20.0
AGENT = Agent("assistant", "", "builtin", "assistant")


class Recorder(Actor):
    """In place of a user's actor: keeps what it is told."""

    def __init__(self, name: str, parent: Ref, told: "queue.SimpleQueue[Any]") -> None:
        super().__init__(name, parent, Silent())
        self._told = told

    def handle(self, message: Any) -> None:
        self._told.put(message)


@pytest.fixture
def told() -> "queue.SimpleQueue[Any]":
    return queue.SimpleQueue()


@pytest.fixture
def users(told: "queue.SimpleQueue[Any]") -> Iterator[Ref]:
    def start(name: str, user: str, parent: Ref, observer: Observer) -> Ref:
        return Recorder.start(name, parent, told)

    edge = Edge()
    edge.start()
    ref: Ref = Users.start("users", None, Silent(), edge, start)
    yield ref
    stop_and_wait(ref, WAIT_S)
    edge.stop()


def spec_of(handle: UserHandle) -> tuple[TurnSpec, FakeSink]:
    sink = FakeSink()
    return TurnSpec("turn_" + "1" * 16, handle, AGENT, sink, None), sink


def test_a_turn_that_begins_again_after_its_user_was_deleted_starts_nothing(
    users: Ref, told: "queue.SimpleQueue[Any]"
) -> None:
    alices, bobs = handle_of("alice"), handle_of("bob")
    alices.standing.end()
    (gone, sink), (runs, untouched) = spec_of(alices), spec_of(bobs)
    users.tell(RunTurn(gone))
    users.tell(RunTurn(runs))
    assert told.get(timeout=WAIT_S) == StartTurn(runs)
    assert [name for name, _ in ask(users, ListChildren(), WAIT_S)] == ["user-bob"]
    assert sink.outcome == Failure("cancelled", GONE)
    assert untouched.outcomes == []


@pytest.mark.parametrize("deleted", [False, True])
def test_a_turn_whose_user_is_deleted_while_it_is_written_down_is_counted_as_one_that_ran(
    tmp_path: Path, deleted: bool
) -> None:
    handle, metrics, storage = handle_of("alice"), Metrics(), Storage(tmp_path, 1)
    entered, go_on = threading.Event(), threading.Event()

    def hold(_: object) -> None:
        entered.set()
        assert go_on.wait(WAIT_S)

    async def run() -> None:
        sessions = SessionsService(storage, SessionsSection())
        starter = Starter(ScriptedTurns(), sessions, Admission(HubSection(), metrics), metrics)
        messages = [Message("user", "hello")]
        starting = asyncio.create_task(starter.start(handle, AGENT, messages, "s", Sampling(), 0.0))
        await asyncio.sleep(0)  # it waits for the disk now
        if deleted:
            handle.standing.end()
        go_on.set()
        if deleted:
            with pytest.raises(HubError):
                await starting
        else:
            turn = await starting
            ends = [found.outcome async for found in turn.log.watch() if isinstance(found, Finished)]
            assert isinstance(ends[0], TurnEnd)

    try:
        storage.submit(handle, lambda store: store.ensure_session("s", "", 1), hold, hold)
        assert entered.wait(WAIT_S)
        asyncio.run(run())
    finally:
        go_on.set()
        storage.stop()
    count = metrics.registry.get_sample_value
    assert count("certosa_turns_running") == 0
    assert count("certosa_turns_started_total") == 1
    assert count("certosa_turns_ended_total", {"outcome": "cancelled" if deleted else "stop"}) == 1
