"""The sessions service against real storage threads: verbs, journal, owners."""

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Coroutine, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from actors.service import TurnSpec, VerbRequest
from core.config import SessionsSection
from core.sessions import (
    Asked,
    EphemeralSession,
    GoesOn,
    OpenTurn,
    SessionBusy,
    SessionEvent,
    SessionNameError,
    SessionsError,
    SessionsService,
    Storage,
    StorageError,
    StoredSession,
    TurnExists,
)
from core.sessions.eventlog import EventLog, LogPage
from core.sessions.openturns import OpenTurns
from core.sessions.store import Outcome, UserStore
from core.sessions.watching import Lost, Watch
from core.vault.handle import UserHandle
from jail.wire.connection import STREAM_WINDOW
from jail.wire.frames import Kind, encode_frame
from jail.wire.schema import (
    Agent,
    Body,
    Delta,
    Done,
    Failure,
    History,
    Message,
    ProviderChat,
    Sampling,
    SessionAppend,
    SessionLoad,
    StepBegin,
    StepEnd,
    ToolCall,
    TurnEnd,
    to_wire,
)
from tests.fakes.reply import FakeReply
from tests.fakes.token_book import handle_of

WAIT_S = 10.0
ALICE, BOB = handle_of("alice"), handle_of("bob")
TURN = "turn_00000000000000aa"
OTHER = "turn_00000000000000bb"
AGENT = Agent("assistant", "p", "builtin", "assistant")
END = TurnEnd("stop")

_T = TypeVar("_T")


class Rig:
    """The service, a loop to open turns on, and short ways to ask."""

    def __init__(self, directory: Path, **config: Any) -> None:
        self.storage = Storage(directory, 1)
        self.service = SessionsService(self.storage, SessionsSection(**config))
        self.loop = asyncio.new_event_loop()
        self.ends: list[TurnEnd | Failure] = []
        self._ids = 0

    def close(self) -> None:
        self.storage.stop()
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return self.loop.run_until_complete(work)

    def open(
        self, handle: UserHandle, turn: str, session: str | None, *texts: str
    ) -> tuple[OpenTurn, TurnSpec]:
        messages = [Message("user", text) for text in texts]
        opened = self.run(self.service.open_turn(handle, turn, session, messages, self.ends.append))
        return opened, TurnSpec(turn, handle, AGENT, opened.log, opened.session)

    def request(self, spec: TurnSpec, body: Body, handle: UserHandle | None = None) -> VerbRequest:
        self._ids += 1
        verb = str(body.__struct_config__.tag)
        return VerbRequest(handle or spec.handle, 1, "agent", spec, self._ids, verb, body, FakeReply())

    def ask(self, spec: TurnSpec, body: Body, handle: UserHandle | None = None) -> FakeReply:
        request = self.request(spec, body, handle)
        self.service.serve(request)
        assert isinstance(request.reply, FakeReply)
        return request.reply.wait_closed()

    def stored(self, handle: UserHandle, work: Any) -> Any:
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.storage.submit(handle, work, answers.put, answers.put)
        return answers.get(timeout=WAIT_S)

    def log(self, handle: UserHandle, session: str, after: int = 0) -> tuple[SessionEvent, ...]:
        found: LogPage = self.stored(handle, lambda s: EventLog(s).read(session, after, 1_000, 1 << 30))
        return found.events


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path / "sealed")
    yield rig
    rig.close()


def texts(reply: FakeReply) -> list[str]:
    return [message.text for message in reply.messages()]


def test_a_kept_session_remembers_across_turns_and_restarts(rig: Rig, tmp_path: Path) -> None:
    opened, spec = rig.open(ALICE, TURN, "s", "hello")
    answer = Message("assistant", "hi", (ToolCall("c", "run", "{}"),))
    assert rig.ask(spec, SessionAppend(TURN, (answer,))).result == Done()
    opened.log.finish(END)
    rig.close()
    again = Rig(tmp_path / "sealed")
    _, spec = again.open(ALICE, OTHER, "s", "and again")
    reply = again.ask(spec, SessionLoad(OTHER))
    assert reply.messages() == [Message("user", "hello"), answer, Message("user", "and again")]
    assert again.stored(ALICE, lambda s: s.turn_state(TURN)) == ("ended", Outcome(end=END))
    again.close()


@pytest.fixture(params=["s", None], ids=["stored", "ephemeral"])
def session(request: pytest.FixtureRequest) -> str | None:
    found: str | None = request.param
    return found


def test_a_long_history_comes_in_frames_that_fit_and_within_credit(rig: Rig, session: str | None) -> None:
    _, spec = rig.open(ALICE, TURN, session, *[f"{n}:" + "ä" * 60_000 for n in range(60)])
    request = rig.request(spec, SessionLoad(TURN))
    reply = request.reply
    assert isinstance(reply, FakeReply)
    rig.service.serve(request)
    reply.wait_items(STREAM_WINDOW)
    assert not reply.closed
    for _ in range(100):  # FakeReply fails the test by itself when credit is overrun
        before = len(reply.items)
        reply.grant(2)
        rig.service.credit(request.key, 2)
        if reply.wait_items(before + 2):
            break
    assert reply.result == Done()
    assert [text.partition(":")[0] for text in texts(reply)] == [str(n) for n in range(60)]
    for item in reply.items:
        assert len(encode_frame(Kind.ITEM, 1, to_wire(item))) < 600_000


def test_many_small_messages_and_many_tool_calls_fit_their_frames(rig: Rig, session: str | None) -> None:
    _, spec = rig.open(ALICE, TURN, session, *["x"] * 600)
    calls = tuple(ToolCall(f"c{n}", "run", "{}") for n in range(64))
    batch = tuple(Message("assistant", str(n), calls) for n in range(60))
    assert rig.ask(spec, SessionAppend(TURN, batch)).result == Done()
    reply = rig.ask(spec, SessionLoad(TURN))
    assert len(reply.messages()) == 660
    for item in reply.items:
        assert isinstance(item, History)
        assert len(item.messages) <= 256
        assert sum(len(m.tool_calls) for m in item.messages) <= 1_024


def test_an_empty_history_is_closed_without_items(rig: Rig, session: str | None) -> None:
    _, spec = rig.open(ALICE, TURN, session)
    reply = rig.ask(spec, SessionLoad(TURN))
    assert (reply.items, reply.result) == ([], Done())
    assert not rig.service._loads


def test_a_load_that_is_cancelled_stops_and_is_forgotten(rig: Rig, session: str | None) -> None:
    _, spec = rig.open(ALICE, TURN, session, *["x" * 200_000] * 40)
    request = rig.request(spec, SessionLoad(TURN))
    reply = request.reply
    assert isinstance(reply, FakeReply)
    rig.service.serve(request)
    reply.wait_items(STREAM_WINDOW)
    rig.service.cancel(request.key)
    assert reply.wait_closed().failure == Failure("cancelled", "no longer wanted")
    rig.service.credit(request.key, 5)
    rig.service.cancel(request.key)
    assert len(reply.items) == STREAM_WINDOW
    assert not rig.service._loads


@pytest.mark.parametrize(
    "body",
    [
        SessionLoad(TURN),
        SessionAppend(TURN, (Message("user", "planted"),)),
        StepBegin(TURN, 1, "run", "{}"),
        StepEnd(TURN, 1, True),
    ],
    ids=lambda body: str(body.__struct_config__.tag),
)
@pytest.mark.parametrize("mix", ["handle", "spec_handle", "session", "turn", "no_session"])
def test_a_mixed_up_request_gets_nothing_and_changes_nothing(
    rig: Rig, session: str | None, body: Body, mix: str
) -> None:
    _, spec = rig.open(ALICE, TURN, session, "alice's secret")
    _, bobs = rig.open(BOB, OTHER, session, "bob's own")
    handle = BOB
    match mix:
        case "handle":  # bob's connection, alice's turn
            wrong = spec
        case "spec_handle":
            wrong, handle = replace(spec, handle=BOB), ALICE
        case "session":  # bob's turn was given alice's session
            wrong = replace(bobs, session=spec.session)
        case "turn":  # alice's session, another turn of hers
            wrong, handle = replace(spec, turn=OTHER), ALICE
        case _:
            wrong, handle = replace(spec, session=None), ALICE
    reply = rig.ask(wrong, body, handle)
    assert reply.items == []
    assert reply.failure is not None
    assert reply.failure.code == "internal"
    assert "secret" not in reply.failure.message
    # the same verbs in the right hands
    assert texts(rig.ask(spec, SessionLoad(TURN))) == ["alice's secret"]
    assert texts(rig.ask(bobs, SessionLoad(OTHER))) == ["bob's own"]
    assert rig.ask(spec, StepBegin(TURN, 1, "run", "{}")).result == Done()


def test_a_row_swapped_on_disk_is_an_error_and_not_an_answer(rig: Rig) -> None:
    _, spec = rig.open(ALICE, TURN, "s", "one", "two")
    assert texts(rig.ask(spec, SessionLoad(TURN))) == ["one", "two"]

    def swap(store: UserStore) -> None:
        store._execute("UPDATE messages SET seq = 3 - seq + 10")
        store._execute("UPDATE messages SET seq = seq - 10")

    assert rig.stored(ALICE, swap) is None
    reply = rig.ask(spec, SessionLoad(TURN))
    assert reply.items == []
    assert reply.failure == Failure("internal", "what is stored did not open; tell the operator")


def test_one_turn_a_session_until_it_ends_and_nobody_elses_counts(rig: Rig) -> None:
    opened, _ = rig.open(ALICE, TURN, "s", "first")
    with pytest.raises(SessionBusy):
        rig.open(ALICE, OTHER, "s", "second")
    assert rig.stored(ALICE, lambda s: s.last_seq("s")) == 1  # the refused one left nothing
    rig.open(BOB, OTHER, "s", "bob's")
    rig.open(ALICE, "turn_00000000000000cc", "t", "another of hers")
    opened.log.finish(END)
    rig.open(ALICE, "turn_00000000000000dd", "s", "second")


def test_a_session_id_that_is_none_is_refused_before_anything_is_kept(rig: Rig, tmp_path: Path) -> None:
    for bad in ("../x", "", "a b"):
        with pytest.raises(SessionNameError):
            rig.open(ALICE, TURN, bad, "x")
    assert not list((tmp_path / "sealed").iterdir())


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (END, "ended"),
        (Failure("upstream", "broken"), "failed"),
        (Failure("cancelled", "by the user"), "cancelled"),
    ],
)
def test_the_journal_says_how_a_turn_ended(rig: Rig, outcome: TurnEnd | Failure, state: str) -> None:
    opened, spec = rig.open(ALICE, TURN, "s", "x")
    assert rig.ask(spec, StepBegin(TURN, 1, "run", '{"x":1}')).result == Done()
    assert rig.ask(spec, StepEnd(TURN, 1, False)).result == Done()
    assert rig.ask(spec, StepBegin(TURN, 2, "run", "{}")).result == Done()
    opened.log.finish(outcome)
    found, record = rig.stored(ALICE, lambda s: s.turn_state(TURN))
    assert found == state
    assert (record.end or record.failure) == outcome
    steps = rig.stored(ALICE, lambda s: s.read_steps(TURN))
    assert [(step.step, step.state) for step in steps] == [(1, "failed"), (2, "begun")]
    assert rig.ends == [outcome]


def test_a_step_begun_twice_is_refused(rig: Rig) -> None:
    _, spec = rig.open(ALICE, TURN, "s", "x")
    assert rig.ask(spec, StepBegin(TURN, 1, "run", "{}")).result == Done()
    again = rig.ask(spec, StepBegin(TURN, 1, "run", "{}"))
    assert again.failure is not None
    assert again.failure.code == "invalid"


def test_events_of_a_kept_session_are_accepted_once_they_are_on_disk_with_ids_that_go_on(
    rig: Rig,
) -> None:
    for turn, first in ((TURN, 2), (OTHER, 55)):  # beside them: accepted, and usage and done
        opened, _ = rig.open(ALICE, turn, "s", "x")
        accepted = threading.Semaphore(0)
        for number in range(50):
            opened.log.append(Delta(f"piece {number}"), accepted.release)
        for _ in range(50):
            assert accepted.acquire(timeout=WAIT_S)
        events = rig.log(ALICE, "s", first - 1)
        assert [event.id for event in events] == list(range(first, first + 50))
        assert {event.turn for event in events} == {turn}
        opened.log.finish(END)


def test_events_still_pending_at_the_end_are_kept_and_accepted(rig: Rig) -> None:
    opened, _ = rig.open(ALICE, TURN, "s", "x")
    accepted = threading.Semaphore(0)
    for number in range(500):
        opened.log.append(Delta(str(number)), accepted.release)
    opened.log.finish(END)
    for _ in range(500):
        assert accepted.acquire(timeout=WAIT_S)
    texts = [event.item.text for event in rig.log(ALICE, "s") if isinstance(event.item, Delta)]
    assert texts == [str(number) for number in range(500)]
    assert rig.stored(ALICE, lambda s: s.turn_state(TURN))[0] == "ended"


def test_a_kept_log_is_bounded_on_disk_too(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "sealed", log_bytes=5_000)
    opened, _ = rig.open(ALICE, TURN, "s", "x")
    accepted = threading.Semaphore(0)
    for _ in range(100):
        opened.log.append(Delta("y" * 500), accepted.release)
        assert accepted.acquire(timeout=WAIT_S)
    events = rig.log(ALICE, "s")
    assert events[-1].id == 101
    assert sum(event.size for event in events) <= 5_000
    opened.log.finish(END)
    rig.close()


def test_events_that_cannot_be_stored_do_not_hold_up_the_turn(rig: Rig) -> None:
    opened, _ = rig.open(ALICE, TURN, "s", "x")
    rig.stored(ALICE, lambda s: s._execute("DROP TABLE events") and None)
    accepted = threading.Semaphore(0)
    for _ in range(3):
        opened.log.append(Delta("y"), accepted.release)
    for _ in range(3):
        assert accepted.acquire(timeout=WAIT_S)
    opened.log.finish(END)


def fill_disk(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Leave no room for a turn's end, so often."""
    plain, left = UserStore.end_turn, iter(range(times))

    def end_turn(store: UserStore, turn: str, outcome: TurnEnd | Failure, now_s: int) -> bool:
        if next(left, None) is not None:
            raise sqlite3.OperationalError("database or disk is full")
        return plain(store, turn, outcome, now_s)

    monkeypatch.setattr(UserStore, "end_turn", end_turn)


def ids(events: Iterable[SessionEvent]) -> list[int]:
    return [event.id for event in events]


async def rest_of(watch: Watch | Lost) -> list[SessionEvent]:
    """What it gives until no turn runs."""
    assert isinstance(watch, Watch)
    found: list[SessionEvent] = []
    while (events := await watch.next(WAIT_S, until_end=True)) is not None:
        assert isinstance(events, tuple)
        assert events, "it never ended"
        found += events
    return found


def test_an_end_that_the_disk_has_no_room_for_is_told_once_and_kept_later(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_disk(monkeypatch, 2)

    async def seen() -> list[SessionEvent]:
        opened = await rig.service.open_turn(
            ALICE, TURN, "s", [Message("user", "x")], rig.ends.append, window=False
        )
        early = await rig.service.watch(ALICE, "s", 0)
        opened.log.finish(END)
        late = await rig.service.watch(ALICE, "s", 0)  # tried again before it reads, in vain
        told = await rest_of(early)
        assert ids(await rest_of(late)) == ids(told)
        last = await rig.service.watch(ALICE, "s", 0)  # and once more
        assert ids(await rest_of(last)) == ids(told)
        assert isinstance(early, Watch)
        assert await early.next(0.1) == ()
        for watch in (early, late, last):
            assert isinstance(watch, Watch)
            watch.close()
        return told

    told = rig.run(seen())
    assert ids(told) == [1, 2, 3]
    kept = rig.log(ALICE, "s")
    assert [(e.id, e.time_ms, e.item) for e in kept] == [(e.id, e.time_ms, e.item) for e in told]
    assert rig.stored(ALICE, lambda s: s.turn_state(TURN))[0] == "ended"


def test_a_session_whose_end_was_not_kept_at_once_is_idle_for_who_comes_later(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, _ = rig.open(ALICE, TURN, "s", "x")
    fill_disk(monkeypatch, 1)
    opened.log.finish(END)  # nobody watches

    async def seen() -> list[SessionEvent]:
        watch = await rig.service.watch(ALICE, "s", 0)
        found = await rest_of(watch)
        assert isinstance(watch, Watch)
        watch.close()
        return found

    assert [type(event.item).__name__ for event in rig.run(seen())] == ["Accepted", "Used", "Ended"]


def test_an_ephemeral_turn_leaves_nothing_on_disk(rig: Rig, tmp_path: Path) -> None:
    opened, spec = rig.open(ALICE, TURN, None, "private")
    assert rig.ask(spec, SessionAppend(TURN, (Message("assistant", "ok"),))).result == Done()
    assert rig.ask(spec, StepBegin(TURN, 1, "run", "{}")).result == Done()
    assert rig.ask(spec, StepEnd(TURN, 1, True)).result == Done()
    assert texts(rig.ask(spec, SessionLoad(TURN))) == ["private", "ok"]
    opened.log.append(Delta("x"), lambda: None)
    opened.log.finish(END)
    assert rig.ends == [END]
    assert not list((tmp_path / "sealed").iterdir())


def test_a_worker_that_stores_without_end_reaches_a_limit(rig: Rig, session: str | None) -> None:
    _, spec = rig.open(ALICE, TURN, session, "x")
    message = (Message("assistant", "y" * 900_000),)
    for _ in range(100):
        reply = rig.ask(spec, SessionAppend(TURN, message))
        if reply.failure is not None:
            break
    assert reply.failure is not None
    assert reply.failure.code == "limit"
    refused = rig.ask(spec, StepBegin(TURN, 1, "run", "{}"))
    assert refused.failure is not None


def test_a_verb_of_another_service_is_answered_unavailable(rig: Rig) -> None:
    _, spec = rig.open(ALICE, TURN, "s", "x")
    reply = rig.ask(spec, ProviderChat(TURN, (Message("user", "x"),)))
    assert reply.failure is not None
    assert reply.failure.code == "unavailable"


def test_a_caller_that_gives_up_while_opening_frees_the_session_and_begins_nothing(rig: Rig) -> None:
    entered, go = threading.Event(), threading.Event()

    def hold(_: UserStore) -> None:
        entered.set()
        assert go.wait(WAIT_S)

    rig.storage.submit(ALICE, hold, lambda _: None, lambda _: None)
    assert entered.wait(WAIT_S)

    async def give_up() -> None:
        opening = asyncio.create_task(
            rig.service.open_turn(ALICE, TURN, "s", [Message("user", "x")], rig.ends.append)
        )
        await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait([opening])
        assert opening.cancelled()

    rig.run(give_up())
    go.set()
    assert isinstance(rig.stored(ALICE, lambda s: s.turn_state(TURN)), SessionsError)
    opened, _ = rig.open(ALICE, OTHER, "s", "y")
    opened.log.finish(END)
    assert rig.ends == [END]


ASKED = Asked("assistant", Sampling(), 900)


def left_by_a_killed_process(directory: Path, asked: Asked | None, *steps: Body) -> None:
    """A turn that was begun, took steps, and had its process die: nothing ends it."""
    rig = Rig(directory)
    opening = rig.service.open_turn(
        ALICE, TURN, "s", [Message("user", "go")], rig.ends.append, window=False, asked=asked
    )
    opened = rig.run(opening)
    spec = TurnSpec(TURN, ALICE, AGENT, opened.log, opened.session)
    for step in steps:
        assert rig.ask(spec, step).result == Done()
    rig.close()


def test_a_turn_of_an_earlier_process_goes_on_and_has_its_session_to_itself(tmp_path: Path) -> None:
    left_by_a_killed_process(tmp_path, ASKED, StepBegin(TURN, 1, "read_file", "{}"))
    rig = Rig(tmp_path)
    found: queue.SimpleQueue[GoesOn] = queue.SimpleQueue()
    rig.service.resume_by(lambda _, turn: found.put(turn))
    with pytest.raises(SessionBusy):  # whoever comes first finds it running
        rig.open(ALICE, OTHER, "s", "me too")
    going = found.get(timeout=WAIT_S)
    assert (going.turn, going.first_step, going.asked) == (TURN, 2, ASKED)
    with pytest.raises(SessionBusy):
        rig.open(ALICE, OTHER, "s", "me too")
    rig.run(asyncio.sleep(0))

    async def reopen() -> OpenTurn:
        return rig.service.reopen(ALICE, going, rig.ends.append, lambda *_: None)

    opened = rig.run(reopen())
    spec = TurnSpec(TURN, ALICE, AGENT, opened.log, opened.session)
    assert rig.ask(spec, StepBegin(TURN, 2, "read_file", "{}")).result == Done()
    opened.log.append(Delta("again"), lambda: None)
    opened.log.finish(END)
    assert rig.stored(ALICE, lambda s: s.turn_state(TURN)) == ("ended", Outcome(end=END))
    shown = [type(event.item).__name__ for event in rig.log(ALICE, "s")]
    assert shown == ["Accepted", "Resumed", "Delta", "Used", "Ended"]
    rig.open(ALICE, OTHER, "s", "me too")[0].log.finish(END)
    rig.close()


def test_a_found_turn_that_cannot_go_on_is_closed_with_a_report_and_frees_its_session(tmp_path: Path) -> None:
    left_by_a_killed_process(tmp_path, ASKED, StepBegin(TURN, 1, "read_file", "{}"), StepEnd(TURN, 1, True))
    rig = Rig(tmp_path)
    found: queue.SimpleQueue[GoesOn] = queue.SimpleQueue()
    rig.service.resume_by(lambda _, turn: found.put(turn))
    rig.stored(ALICE, lambda s: None)
    rig.service.give_up(ALICE, found.get(timeout=WAIT_S), Failure("internal", "no such agent"))
    opened, spec = rig.open(ALICE, OTHER, "s", "me")
    assert rig.stored(ALICE, lambda s: s.turn_state(TURN))[0] == "failed"
    assert rig.stored(ALICE, ending_of).message.startswith("no such agent. Completed: step 1 read_file.")
    said = texts(rig.ask(spec, SessionLoad(OTHER)))
    assert (said[0], "results that are lost" in said[1].lower(), said[2:]) == ("go", True, ["me"])
    opened.log.finish(END)
    rig.close()


@pytest.mark.parametrize("later", [False, True], ids=["within its time", "past it"])
def test_a_found_turn_has_its_session_only_if_that_was_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: bool
) -> None:
    left_by_a_killed_process(tmp_path, ASKED)
    rig = Rig(tmp_path)
    found: queue.SimpleQueue[GoesOn] = queue.SimpleQueue()
    rig.service.resume_by(lambda _, turn: found.put(turn))
    full = rig.stored(ALICE, fail_the_group)
    assert isinstance(full, StorageError)
    assert found.empty()
    if later:  # it is judged anew, and another way
        plain = OpenTurns.recover
        monkeypatch.setattr(OpenTurns, "recover", lambda s, now_s, may: plain(s, now_s + 1_000, may))
        rig.open(ALICE, OTHER, "s", "me")[0].log.finish(END)
        assert "interrupted" in rig.stored(ALICE, ending_of).message
    else:
        with pytest.raises(SessionBusy):
            rig.open(ALICE, OTHER, "s", "me")
        assert found.get(timeout=WAIT_S).turn == TURN
    assert found.empty()
    rig.close()


def fail_the_group(store: UserStore) -> None:
    """As SQLite does where the disk is full: it undoes all of it."""
    store.connection.execute("ROLLBACK")
    raise sqlite3.OperationalError("database or disk is full")


@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE turns SET asked = (SELECT sealed FROM steps)",
        "UPDATE steps SET sealed = (SELECT sealed FROM meta)",
        "UPDATE messages SET sealed = x'00'",
    ],
)
def test_a_turn_whose_records_do_not_open_ends_and_keeps_nobody_from_the_rest(
    tmp_path: Path, harm: str
) -> None:
    left_by_a_killed_process(tmp_path, ASKED, StepBegin(TURN, 1, "read_file", "{}"))
    with contextlib.closing(sqlite3.connect(tmp_path / "alice.db")) as db, db:
        db.execute(harm)
    rig = Rig(tmp_path)
    found: queue.SimpleQueue[GoesOn] = queue.SimpleQueue()
    rig.service.resume_by(lambda _, turn: found.put(turn))
    assert "what it did cannot be read" in rig.stored(ALICE, ending_of).message
    opened, spec = rig.open(ALICE, OTHER, "another", "me")
    assert texts(rig.ask(spec, SessionLoad(OTHER))) == ["me"]
    assert found.empty()
    opened.log.finish(END)
    rig.close()


def test_a_turn_of_another_version_ends_and_its_storage_thread_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Newer(msgspec.Struct):
        agent: str
        sampling: Sampling
        wall_s: int
        unheard_of: int

    left_by_a_killed_process(tmp_path, Newer("assistant", Sampling(), 900, 1))  # type: ignore[arg-type]
    rig = Rig(tmp_path)
    assert "what it did cannot be read" in rig.stored(ALICE, ending_of).message
    rig.open(BOB, OTHER, "s", "me")[0].log.finish(END)
    rig.close()


def test_the_same_start_again_finds_the_turn_that_goes_on(tmp_path: Path) -> None:
    left_by_a_killed_process(tmp_path, ASKED)
    rig = Rig(tmp_path)
    found: queue.SimpleQueue[GoesOn] = queue.SimpleQueue()
    rig.service.resume_by(lambda _, turn: found.put(turn))
    with pytest.raises(TurnExists):
        rig.open(ALICE, TURN, "s", "go")
    assert found.get(timeout=WAIT_S).turn == TURN
    with pytest.raises(SessionBusy):
        rig.open(ALICE, OTHER, "s", "me too")
    rig.close()


@pytest.mark.parametrize(
    ("asked", "step"),
    [(ASKED, StepBegin(TURN, 1, "run_command", "{}")), (None, StepBegin(TURN, 1, "read_file", "{}"))],
    ids=["a tool that acts", "a client that left"],
)
def test_a_turn_of_an_earlier_process_that_may_not_go_on_is_closed_with_a_report(
    tmp_path: Path, asked: Asked | None, step: Body
) -> None:
    left_by_a_killed_process(tmp_path, asked, step)
    rig = Rig(tmp_path)
    found: queue.SimpleQueue[GoesOn] = queue.SimpleQueue()
    rig.service.resume_by(lambda _, turn: found.put(turn))
    opened, spec = rig.open(ALICE, OTHER, "s", "what now?")
    assert "May have been done in part: step 1" in rig.stored(ALICE, ending_of).message
    said = texts(rig.ask(spec, SessionLoad(OTHER)))
    assert said[0] == "go"
    assert "may have been done in part" in said[1]
    assert said[2:] == ["what now?"]
    assert found.empty()
    opened.log.finish(END)
    rig.close()


def ending_of(store: UserStore) -> Failure:
    outcome = store.turn_state(TURN)[1]
    assert outcome is not None
    assert outcome.failure is not None
    return outcome.failure


def lose(rig: Rig, *steps: Body, again: bool = True, session: str | None = "s") -> tuple[OpenTurn, Any]:
    """A turn whose jail dies after these steps; its log, and a queue of what it is started anew with."""
    restarts: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def ended(outcome: TurnEnd | Failure) -> None:
        rig.ends.append(outcome)
        restarts.put(outcome)

    opened = rig.run(
        rig.service.open_turn(
            ALICE,
            TURN,
            session,
            [Message("user", "go")],
            ended,
            window=session is None,
            asked=ASKED,
            restart=lambda *how: restarts.put(how),
        )
    )
    spec = TurnSpec(TURN, ALICE, AGENT, opened.log, opened.session)
    for step in steps:
        assert rig.ask(spec, step).result == Done()
    opened.log.lost(Failure("worker", "your jail ended"), again)
    return opened, restarts.get(timeout=WAIT_S)


def test_a_turn_that_lost_its_jail_while_reading_is_started_anew(rig: Rig) -> None:
    opened, how = lose(rig, StepBegin(TURN, 1, "read_file", "{}"), StepEnd(TURN, 1, True))
    assert how[0] == 2
    assert 0 < how[1] <= 900
    assert rig.ends == []
    opened.log.finish(END)
    assert rig.ends == [END]
    shown = [type(event.item).__name__ for event in rig.log(ALICE, "s")]
    assert shown == ["Accepted", "Resumed", "Used", "Ended"]


@pytest.mark.parametrize(
    ("step", "again"),
    [(StepBegin(TURN, 1, "write_file", "{}"), True), (StepBegin(TURN, 1, "read_file", "{}"), False)],
    ids=["a tool that acts", "a fault of its own"],
)
def test_a_turn_that_lost_its_jail_otherwise_fails_with_a_report(rig: Rig, step: Body, again: bool) -> None:
    _, end = lose(rig, step, again=again)
    assert isinstance(end, Failure)
    assert (end.code, "May have been done in part: step 1" in end.message) == ("worker", True)
    assert rig.stored(ALICE, ending_of) == end


def test_a_turn_that_is_kept_for_nobody_has_its_report_too(rig: Rig) -> None:
    steps = (
        StepBegin(TURN, 1, "write_file", "{}"),
        StepEnd(TURN, 1, True),
        StepBegin(TURN, 2, "run_command", ""),
    )
    _, end = lose(rig, *steps, session=None)
    assert isinstance(end, Failure)
    assert "Completed: step 1 write_file. May have been done in part: step 2 run_command" in end.message


def test_storage_that_fails_is_a_storage_error_and_frees_the_session(rig: Rig, tmp_path: Path) -> None:
    path = tmp_path / "sealed" / "alice.db"
    path.write_bytes(b"rubbish " * 1_000)
    path.chmod(0o600)
    for _ in range(2):
        with pytest.raises(StorageError):
            rig.open(ALICE, TURN, "s", "x")
    path.unlink()
    opened, _ = rig.open(ALICE, OTHER, "s", "x")
    assert isinstance(opened.session, StoredSession)
    opened.log.finish(END)


def test_sessions_know_their_owner(rig: Rig) -> None:
    opened, _ = rig.open(ALICE, TURN, None, "x")
    assert isinstance(opened.session, EphemeralSession)
    assert opened.session.owner == "alice"
    stored, _ = rig.open(BOB, OTHER, "s", "x")
    assert stored.session.owner == "bob"
