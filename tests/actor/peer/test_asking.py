"""A worker that has to ask before a tool acts: the tool waits, and so does the turn's clock."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from jail.wire.schema import (
    ApprovalAsk,
    Done,
    Failure,
    Notice,
    StepBegin,
    ToolEnded,
    ToolStarted,
    TurnEnd,
    TurnHold,
)
from tests.actor.peer.conftest import Start
from tests.actor.peer.scripts import agent, call, say, use

TURN = "turn_0000000000000001"
ASKING = replace(agent(), ask=("run_command",))


def test_a_tool_that_is_to_be_asked_about_waits_for_its_answer_and_another_does_not(
    start: Start, tmp_path: Path
) -> None:
    core = start(
        use(call("read_file", "a", path="none"), call("run_command", "b", command="echo ran")), say("ok")
    ).core
    core.silent.add(ApprovalAsk)

    log = core.start_turn(ASKING)
    core.pump(lambda: bool(core.unanswered))
    core.settle()

    (asked,) = core.unanswered
    assert asked == ApprovalAsk(TURN, 2, "run_command", '{"command": "echo ran"}')
    assert [s.tool for s in core.steps if isinstance(s, StepBegin)] == ["read_file"]
    assert [type(item) for item in log.items][-1] is ToolStarted
    core.send(core.connection.reply(core.silent_ids[0], Done()))
    core.pump(lambda: log.outcome is not None)
    assert [s.tool for s in core.steps if isinstance(s, StepBegin)] == ["read_file", "run_command"]
    assert "ran" in log.of(ToolEnded)[1].text


@pytest.mark.parametrize("code", ["refused", "approval_required"])
def test_what_was_refused_does_not_act_and_the_model_is_told(start: Start, code: str, tmp_path: Path) -> None:
    core = start(use(call("run_command", command="touch ran")), say("A pity.")).core
    core.refuse[ApprovalAsk] = Failure(code, "the person who was asked refused")  # type: ignore[arg-type]

    log = core.run_turn(ASKING)

    (ended,) = log.of(ToolEnded)
    assert (ended.ok, ended.text) == (False, "Not allowed: the person who was asked refused")
    assert core.steps == []
    assert core.chats[1].messages[-1].text == ended.text
    assert log.outcome is not None
    assert log.text == "A pity."
    assert not list(tmp_path.rglob("ran"))


def test_an_agent_that_asks_for_nothing_asks_nobody(start: Start) -> None:
    core = start(use(call("run_command", command="true")), say("ok")).core
    core.run_turn(agent())
    assert core.asked == []
    assert len(core.steps) == 2


def test_the_clock_of_a_held_turn_stands_still_and_then_goes_on(start: Start) -> None:
    core = start(use(call("run_command", command="true")), say("ok")).core
    core.silent.add(ApprovalAsk)

    log = core.start_turn(replace(ASKING, limits=agent(wall_s=1).limits))
    hold = core.request(TurnHold(TURN, True))
    core.pump(lambda: hold in core.closed_requests and bool(core.unanswered))
    with pytest.raises(AssertionError, match="in time"):
        core.pump(lambda: log.outcome is not None, timeout_s=2.5)
    assert log.of(Notice) == []
    core.request(TurnHold(TURN, False))
    core.pump(lambda: log.outcome is not None)
    assert isinstance(log.outcome, TurnEnd)
    assert log.outcome.finish == "wall", "the control: the time that was left ran out, unanswered as it was"


def test_a_hold_for_a_turn_that_is_over_is_answered(start: Start) -> None:
    core = start(say("ok")).core
    core.run_turn(agent())
    hold = core.request(TurnHold(TURN, True))
    core.pump(lambda: hold in core.closed_requests)
    assert core.closed_requests[hold] == Done()
    assert core.run_turn(agent()).text == ""
