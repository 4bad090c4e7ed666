"""What is asked of a person, in their own sealed store: kept, answered once, gone with its process."""

import asyncio
import queue
import sqlite3
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from actors.approvals import Answered
from actors.asking import ApprovalResolved, ApprovalWanted, Resolution
from actors.service import TurnSpec
from core.approvals import AlreadyDecided, ApprovalDesk, Book, NoSuchApproval
from core.config import SessionsSection
from core.metrics import Metrics
from core.sessions import SessionsService, Storage, StorageError
from core.sessions.approvals import ApprovalRecords
from core.sessions.eventlog import EventLog
from core.sessions.events import Failed
from core.vault.handle import UserHandle
from jail.wire.schema import Agent, Failure
from tests.fakes.token_book import handle_of

WAIT_S = 20.0
ALICE, BOB = handle_of("alice"), handle_of("bob")
AGENT = Agent("assistant", "p", "builtin", "assistant")
SECRET = "certosa-secret-argument"
WANTED = ApprovalWanted("approval_1", "tool", "run_command", f'{{"command": "{SECRET}"}}', 2_000_000_000, 1)

_T = TypeVar("_T")


class Rig:
    """Storage, book and desk; the actor is this one, and has open what ``open`` says."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.storage = Storage(directory, 1)
        self.sessions = SessionsService(self.storage, SessionsSection())
        self.metrics = Metrics()
        self.book = Book(self.storage, self.metrics)
        self.desk = ApprovalDesk(self.storage, self)
        self.open: dict[str, TurnSpec] = {}
        self.loop = asyncio.new_event_loop()

    def answer_approval(self, user: str, approval: str, allow: bool, answered: Answered) -> None:
        spec = self.open.get(approval)
        if spec is None or spec.handle.user != user:
            answered(None, None)
            return
        outcome: Resolution = "allowed" if allow else "refused"
        self.book.settle(spec, approval, outcome, lambda failure: answered(outcome, failure))

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return self.loop.run_until_complete(work)

    def turn(self, session: str | None, turn: str = "turn_00000000000000aa") -> TurnSpec:
        opened = self.run(self.sessions.open_turn(ALICE, turn, session, (), lambda _: None))
        return TurnSpec(turn, ALICE, AGENT, opened.log, opened.session)

    def ask(self, spec: TurnSpec, wanted: ApprovalWanted = WANTED) -> None:
        kept: queue.SimpleQueue[Failure | None] = queue.SimpleQueue()
        self.book.keep(spec, wanted, kept.put)
        assert kept.get(timeout=WAIT_S) is None
        self.open[wanted.approval] = spec

    def stored(self, handle: UserHandle, work: Any) -> Any:
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.storage.submit(handle, work, answers.put, answers.put)
        return answers.get(timeout=WAIT_S)

    def stop(self) -> None:
        self.storage.stop()
        self.loop.close()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path / "sealed")
    yield rig
    rig.stop()


def test_what_waits_is_listed_and_answered_once(rig: Rig) -> None:
    rig.ask(rig.turn("s"))
    (row,) = rig.run(rig.desk.open(ALICE))
    assert (row.session, row.turn, row.outcome) == ("s", "turn_00000000000000aa", None)
    assert row.wanted == WANTED
    assert rig.run(rig.desk.answer(ALICE, "approval_1", True)).outcome == "allowed"
    assert rig.run(rig.desk.open(ALICE)) == []
    for again in (True, False):
        with pytest.raises(AlreadyDecided, match="was allowed; nothing was changed"):
            rig.run(rig.desk.answer(ALICE, "approval_1", again))
    assert rig.metrics.registry.get_sample_value("certosa_approvals_total", {"outcome": "allowed"}) == 1


def test_an_answer_that_is_quicker_than_the_actor_hears_of_its_question_counts(rig: Rig) -> None:
    spec = rig.turn("s")
    rig.ask(spec)
    del rig.open["approval_1"]  # it is on the disk, and shown; its actor is still to be told
    looked = 0

    def hear(user: str, approval: str, allow: bool, answered: Answered) -> None:
        nonlocal looked
        looked += 1
        if looked == 2:
            rig.open["approval_1"] = spec
        Rig.answer_approval(rig, user, approval, allow, answered)

    rig.answer_approval = hear  # type: ignore[method-assign]
    assert rig.run(rig.desk.answer(ALICE, "approval_1", True)).outcome == "allowed"
    assert looked == 2


def test_only_its_own_user_sees_and_answers_it(rig: Rig) -> None:
    rig.ask(rig.turn("s"))
    assert rig.run(rig.desk.open(BOB)) == []
    with pytest.raises(NoSuchApproval):
        rig.run(rig.desk.answer(BOB, "approval_1", True))
    with pytest.raises(NoSuchApproval):
        rig.run(rig.desk.answer(ALICE, "approval_2", True))
    assert rig.run(rig.desk.answer(ALICE, "approval_1", False)).outcome == "refused"


def test_what_is_asked_lies_sealed_on_the_disk(rig: Rig) -> None:
    rig.ask(rig.turn(None))
    assert rig.run(rig.desk.open(ALICE))[0].session == ""
    files = [path.read_bytes() for path in rig.directory.iterdir()]
    assert any(b"approval_1" in data for data in files), "the control: the row is there"
    assert not any(SECRET.encode() in data or b"run_command" in data for data in files)


def test_a_row_that_was_moved_to_another_place_does_not_open(rig: Rig) -> None:
    rig.ask(rig.turn("s"))
    connection = sqlite3.connect(rig.directory / "alice.db")
    connection.execute("UPDATE approvals SET id = 'approval_9'")
    connection.commit()
    connection.close()
    with pytest.raises(Exception, match=r"open"):
        rig.run(rig.desk.open(ALICE))


def test_after_a_restart_what_was_open_is_a_refusal_and_the_log_says_so(tmp_path: Path) -> None:
    first = Rig(tmp_path / "sealed")
    first.ask(first.turn("s"))
    first.ask(first.turn(None, "turn_00000000000000bb"), ApprovalWanted("approval_2", "verb", "x", "{}", 1))
    first.stop()
    second = Rig(tmp_path / "sealed")
    try:
        assert second.run(second.desk.open(ALICE)) == []
        for approval in ("approval_1", "approval_2"):
            with pytest.raises(AlreadyDecided, match="its turn ended"):
                second.run(second.desk.answer(ALICE, approval, True))
        page = second.stored(ALICE, lambda store: EventLog(store).read("s", 0, 100, 1 << 20))
        last = [event.item for event in page.events][-2:]
        assert last[0] == ApprovalResolved("approval_1", "ended")
        assert isinstance(last[1], Failed)
        second.ask(second.turn("s", "turn_00000000000000cc"), ApprovalWanted("a3", "verb", "x", "{}", 1))
        assert len(second.run(second.desk.open(ALICE))) == 1, "the control: one of this life's is open"
    finally:
        second.stop()


def test_decided_ones_are_forgotten_after_a_week_and_open_ones_are_not(rig: Rig) -> None:
    def work(store: Any) -> list[str]:
        records = ApprovalRecords(store)
        records.add("t", None, ApprovalWanted("old", "verb", "x", "{}", 1), 1_000)
        records.add("t", None, ApprovalWanted("waits", "verb", "x", "{}", 1), 1_000)
        assert records.settle("old", "refused", 1_000)
        assert not records.settle("old", "allowed", 1_001)
        records.add("t", None, ApprovalWanted("new", "verb", "x", "{}", 1), 1_000 + 8 * 86_400)
        return [name for name in ("old", "waits", "new") if records.find(name) is not None]

    assert rig.stored(ALICE, work) == ["waits", "new"]


def test_a_deleted_session_takes_its_approvals_along(rig: Rig) -> None:
    rig.ask(rig.turn("s"))

    def work(store: Any) -> Any:
        store.connection.execute("DELETE FROM sessions WHERE id = 's'")
        return ApprovalRecords(store).find("approval_1")

    assert rig.stored(ALICE, work) is None


def test_a_store_that_cannot_write_says_so_to_the_actor_and_to_the_person(rig: Rig) -> None:
    spec = rig.turn("s")
    rig.ask(spec)
    rig.storage.stop()
    told: queue.SimpleQueue[Failure | None] = queue.SimpleQueue()
    rig.book.keep(spec, ApprovalWanted("approval_2", "verb", "x", "{}", 1), told.put)
    rig.book.settle(spec, "approval_1", "allowed", told.put)
    for _ in range(2):
        failure = told.get(timeout=WAIT_S)
        assert failure is not None
        assert failure.code == "unavailable"
    with pytest.raises(StorageError):
        rig.run(rig.desk.answer(ALICE, "approval_1", True))
