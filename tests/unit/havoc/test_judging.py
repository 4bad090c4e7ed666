"""What the chaos test calls wrong, and that it calls nothing else so."""

from typing import Any

import pytest

from scripts.havoc.judging import judge
from scripts.havoc.turns import TOKENS, Json, Kind, Turn, make


def event(number: int, kind: str, turn: Turn, **more: Any) -> Json:
    return {"id": number, "type": kind, "turn": turn.id, **more}


def told(kind: Kind = "talk", end: str = "done", **more: Any) -> Turn:
    """A turn whose person saw all of it."""
    turn = make(kind, "ann-00001")
    turn.id = "turn_1"
    turn.events = [event(1, "accepted", turn), event(2, "delta", turn), event(3, end, turn, **more)]
    return turn


def messages(turn: Turn, answers: int = 1) -> list[Json]:
    answer = {"role": "assistant", "content": "word " * TOKENS}
    return [{"role": "user", "content": turn.text}, *[answer] * answers]


def test_a_turn_that_was_answered_is_well() -> None:
    turn = told()
    assert judge(turn, list(turn.events), messages(turn), 0) == []


def test_a_turn_that_was_closed_with_a_report_is_well_whether_its_tool_ran_or_not() -> None:
    turn = told("act", "error", code="internal", message="May have been done in part: step 1 run_command")
    for times in (0, 1):
        assert judge(turn, list(turn.events), messages(turn), times) == []


@pytest.mark.parametrize(
    ("times", "message", "fault"),
    [
        (2, "May have been done in part: step 1 run_command", "its tool ran 2 times"),
        (1, "interrupted", "its tool ran, and nothing says so"),
        (0, "Completed: step 1 run_command", "is said to have completed, and left nothing"),
    ],
)
def test_steps_that_do_not_fit_what_is_said_of_them_are_faults(times: int, message: str, fault: str) -> None:
    turn = told("act", "error", code="internal", message=message)
    (found,) = judge(turn, list(turn.events), messages(turn), times)
    assert fault in found


def test_a_second_end_and_a_second_answer_are_faults() -> None:
    turn = told()
    turn.events.append(event(4, "error", turn, message="again"))
    faults = judge(turn, list(turn.events), messages(turn), 0)
    assert any("its log has 2 ends" in fault for fault in faults)
    turn = told()
    (fault,) = judge(turn, list(turn.events), messages(turn, answers=2), 0)
    assert "its session has 2 answers" in fault


def test_events_that_were_given_and_are_not_kept_are_a_fault_unless_the_log_said_it_has_gaps() -> None:
    turn = told()
    kept = [turn.events[0], turn.events[2]]
    (fault,) = judge(turn, kept, messages(turn), 0)
    assert "event 2 (delta) was given" in fault
    assert judge(turn, kept, messages(turn), 0, lossy=True) == []
    otherwise = [*turn.events[:1], event(2, "notice", turn), turn.events[2]]
    (fault,) = judge(turn, otherwise, messages(turn), 0, lossy=True)
    assert "kept otherwise" in fault


def test_events_that_are_kept_and_were_never_given_are_a_fault() -> None:
    turn = told()
    kept = list(turn.events)
    del turn.events[1]
    (fault,) = judge(turn, kept, messages(turn), 0)
    assert "were never given" in fault
