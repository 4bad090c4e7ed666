"""What becomes of a turn that lost its jail or its server: on a real file, in one thread."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from core.sessions.database import Database
from core.sessions.eventlog import EventLog
from core.sessions.events import Failed, LogItem, Resumed, beginning
from core.sessions.openturns import INTERRUPTED, GoesOn, OpenTurns
from core.sessions.recovery import READS, Asked, Close, StepCall, StepRow, report
from core.sessions.store import UserStore
from jail.peer.tools import BUILT_IN
from jail.wire.schema import (
    Delta,
    Failure,
    Message,
    PictureShown,
    Sampling,
    ToolCall,
    ToolEnded,
    ToolStarted,
    TurnEnd,
    cut_short,
)
from tests.fakes.token_book import handle_of

ALICE = handle_of("alice")
TURN = "turn_00000000000000aa"
WHY = Failure("worker", "your jail ended")
ASKED = Asked("assistant", Sampling(), 900)


class Journal:
    """A turn that is written down step by step, and then left."""

    def __init__(self, store: UserStore, asked: Asked | None = ASKED) -> None:
        self.store, self.turns, self.log = store, OpenTurns(store), EventLog(store)
        store.ensure_session("s", "t", 1_000)
        question = Message("user", "go")
        store.append_messages("s", [question], 1_000)
        store.begin_turn(TURN, "s", 1_000)
        if asked is not None:
            self.turns.remember(TURN, asked)
        self.show(*beginning("assistant", 1, question))

    def show(self, *items: LogItem) -> None:
        self.log.add("s", TURN, items, 1_000_000)

    def step(self, number: int, tool: str, ended: bool = True, ok: bool = True) -> None:
        self.show(ToolStarted(number, tool, "{}"))
        self.store.begin_step(TURN, number, StepCall(tool, '{"path": "a"}'), 1_001)
        if ended:
            self.store.end_step(TURN, number, ok, 1_002)
            self.show(ToolEnded(number, ok, "text"))

    def keep(self, *numbers: int) -> None:
        """A round's messages, as the worker keeps them once its tools have run."""
        calls = tuple(ToolCall(f"c{n}", "t", "{}") for n in numbers)
        results = [Message("tool", "text", tool_call_id=call.id) for call in calls]
        self.store.append_messages("s", [Message("assistant", "", calls), *results], 1_003)
        self.turns.keep_steps(TURN)

    def judge(self, now_s: float = 1_100, again: bool = True, why: Failure = WHY) -> GoesOn | Close:
        return self.turns.judge(TURN, "s", why, now_s, again)

    def texts(self) -> list[str]:
        return [m.text for m in self.store.read_messages("s", 0, 1_000, 1 << 20, 1_000).messages]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[UserStore]:
    database = Database(tmp_path / "alice.db")
    yield database.bind(ALICE)
    database.close()


@pytest.fixture
def journal(store: UserStore) -> Journal:
    return Journal(store)


def goes_on(fate: GoesOn | Close) -> GoesOn:
    assert isinstance(fate, GoesOn), fate
    return fate


def closed(fate: GoesOn | Close) -> Failure:
    assert isinstance(fate, Close), fate
    assert isinstance(fate.outcome, Failure)
    return fate.outcome


def test_a_turn_that_only_asked_its_model_goes_on_with_the_time_that_is_left(journal: Journal) -> None:
    journal.show(Delta("half an ans"))
    fate = goes_on(journal.judge(1_100))
    assert (fate.first_step, fate.after, fate.wall_s) == (1, 1, 800)
    assert fate.asked == ASKED


def test_reads_in_flight_are_made_again_and_what_was_kept_is_not(journal: Journal) -> None:
    journal.step(1, "write_file")
    journal.keep(1)
    counted = journal.log.last_id("s")
    journal.show(Delta("now I read"))
    journal.step(2, "read_file")
    journal.step(3, "search_files", ended=False)
    fate = goes_on(journal.judge())
    assert (fate.first_step, fate.after) == (4, counted)


@pytest.mark.parametrize("ended", [True, False])
def test_a_picture_of_a_call_that_is_made_again_is_taken_back_and_one_that_was_kept_stays(
    journal: Journal, ended: bool
) -> None:
    def show(step: int, ended: bool) -> int:
        journal.step(step, "show_picture", ended=False)
        journal.show(PictureShown("a.png", "image/png", 100, "", step))
        shown = journal.log.last_id("s")
        if ended:
            journal.store.end_step(TURN, step, True, 1_002)
            journal.show(ToolEnded(step, True, "text"))
        return shown

    kept = show(1, ended=True)
    journal.keep(1)
    again = show(2, ended)
    fate = goes_on(journal.judge())
    assert kept < fate.after < again
    assert fate.first_step == 3


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("tool", sorted(set(BUILT_IN) - READS))
def test_a_tool_that_may_have_changed_something_is_never_made_again(
    journal: Journal, tool: str, ended: bool
) -> None:
    journal.step(1, "read_file")
    journal.keep(1)
    journal.step(2, tool, ended)
    failure = closed(journal.judge())
    assert failure.code == "worker"
    completed = f"Completed: step 1 read_file, step 2 {tool}."
    assert completed in failure.message if ended else f"in part: step 2 {tool}." in failure.message
    assert ("in part" in failure.message) is not ended


def test_what_only_reads_is_a_tool_that_there_is() -> None:
    assert set(BUILT_IN) > READS


def test_the_model_is_told_what_the_session_has_no_result_of(journal: Journal) -> None:
    journal.step(1, "write_file")
    journal.step(2, "run_command", ended=False)
    fate = journal.judge()
    assert isinstance(fate, Close)
    journal.store.end_turn(TURN, fate.outcome, 1_100)
    said = journal.texts()[-1]
    assert 'step 1 write_file {"path": "a"}: completed' in said
    assert 'step 2 run_command {"path": "a"}: may have been done in part' in said
    assert journal.store.turn_state(TURN)[0] == "failed"


def test_a_turn_past_its_time_or_started_for_a_client_that_left_is_closed(store: UserStore) -> None:
    journal = Journal(store)
    assert closed(journal.judge(1_901)).message == "your jail ended"
    goes_on(journal.judge(1_899))
    assert closed(journal.judge(again=False))
    store.end_turn(TURN, WHY, 1)
    other = "turn_00000000000000bb"
    store.begin_turn(other, "s", 1_000)
    assert isinstance(journal.turns.judge(other, "s", WHY, 1_001, True), Close)


def test_a_clock_that_went_back_gives_no_more_time_than_there_was(journal: Journal) -> None:
    assert goes_on(journal.judge(0)).wall_s == 900


def test_a_turn_that_loses_its_jail_each_time_is_closed_at_last(journal: Journal) -> None:
    goes_on(journal.judge())
    goes_on(journal.judge())
    closed(journal.judge())


def test_a_round_that_was_kept_in_part_is_not_gone_on_from(journal: Journal) -> None:
    journal.step(1, "read_file")
    calls = (ToolCall("c1", "read_file", "{}"), ToolCall("c2", "read_file", "{}"))
    journal.store.append_messages("s", [Message("assistant", "", calls), Message("tool", "x")], 1_003)
    closed(journal.judge())
    journal.store.append_messages("s", [Message("tool", "y")], 1_003)
    goes_on(journal.judge())


def test_an_answer_that_was_complete_ends_its_turn_well(journal: Journal) -> None:
    journal.store.append_messages("s", [Message("assistant", "all of it")], 1_003)
    fate = journal.judge()
    assert fate == Close(TurnEnd("stop"), "")


def test_an_answer_that_was_cut_short_is_no_end_and_nothing_to_go_on_from(journal: Journal) -> None:
    text = cut_short("half of", "the turn failed (unavailable)")
    journal.store.append_messages("s", [Message("assistant", text)], 1_003)
    assert closed(journal.judge()) == WHY
    assert journal.texts()[-1] == text


def test_at_the_next_opening_each_turn_goes_on_or_is_closed_once(journal: Journal) -> None:
    journal.show(Delta("half"))
    last = journal.log.last_id("s")
    journal.store.ensure_session("t", "", 1)
    journal.store.begin_turn("turn_00000000000000bb", "t", 1_000)
    (going,), closed_count = journal.turns.recover(1_100, True)
    assert (going.turn, going.session, closed_count) == (TURN, "s", 1)
    said = journal.log.read("s", last, 10, 1 << 20).events
    assert [(e.id, e.item) for e in said] == [(going.said_at, Resumed(1))]
    assert going.said_at > last + 1_000_000  # past what a power cut may have taken
    (end,) = journal.log.read("t", 0, 10, 1 << 20).events
    assert end.item == Failed("internal", INTERRUPTED.message)
    assert journal.turns.recover(1_100, False) == ([], 1)
    assert journal.turns.recover(1_100, True) == ([], 0)


def test_a_report_stays_short_and_tells_how_many_it_leaves_out() -> None:
    steps = [StepRow(n, "ok", StepCall("run_command", "x" * 5_000)) for n in range(1, 1_001)]
    steps.append(StepRow(1_001, "failed", StepCall("write_file", "")))
    steps.append(StepRow(1_002, "begun", StepCall("run_python", "")))
    said = report(steps, WHY)
    assert len(said.message) < 2_000
    assert "Completed: 981 more, step 982 run_command" in said.message
    assert "step 1001 write_file (failed). May have been done in part: step 1002 run_python" in said.message
    assert report([], WHY) == WHY
