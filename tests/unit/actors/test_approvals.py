"""Questions to a person: who may go on, when, and whose time stands still meanwhile."""

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from actors.approvals import ApprovalRules, Approvals, Question
from actors.asking import SHOWN_CHARS, ApprovalResolved, ApprovalWanted, Resolution
from actors.instructions import Cancel, Credit, KeepApproval, Kill, Serve, SettleApproval, TellAnswered
from actors.service import TurnSpec
from jail.wire.connection import Asked, Failed, Replied
from jail.wire.schema import (
    Agent,
    ApprovalAsk,
    ChatEnd,
    Delta,
    Done,
    Failure,
    HttpFetch,
    Limits,
    Message,
    ProviderChat,
    StepBegin,
    TurnEnd,
    TurnHold,
)
from tests.fakes.handle import FakeHandle
from tests.fakes.sink import FakeSink
from tests.unit.actors.test_user_state import ONE, TWO, House

RULES = ApprovalRules(expires_s=60.0, most=2, held_s=100.0)
ARGUMENTS = '{"command": "rm -rf ."}'


@dataclass
class Asking(House):
    """A house whose agent has to ask before it runs a command."""

    answers: list[tuple[Resolution | None, Failure | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        names = iter(f"approval_{n}" for n in range(1, 1_000))
        self.state.approvals = Approvals(RULES, lambda: next(names), lambda: 1_000.0)

    def do(self, instructions: list[Any]) -> list[Any]:
        rest = super().do(instructions)
        for instruction in rest:
            if isinstance(instruction, TellAnswered):
                self.answers.append((instruction.outcome, instruction.failure))
        return rest

    def spec(self, turn: str = ONE, **limits: int) -> TurnSpec:
        agent = Agent("a", "", "p", "m", ("run_command",), Limits(**limits), ("run_command",))
        return TurnSpec(turn, FakeHandle("alice"), agent, FakeSink(), None)

    def ask(self, step: int = 1, turn: str = ONE, arguments: str = ARGUMENTS) -> tuple[int, Question]:
        """The worker asks; the question, which is open from then on."""
        request, rest = self.asks(ApprovalAsk(turn, step, "run_command", arguments))
        (kept,) = rest
        assert isinstance(kept, KeepApproval)
        self.do(self.state.approval_kept(kept.question.id, None, self.now_s))
        return request, kept.question

    def answer(self, question: Question, allow: bool) -> list[Any]:
        def answered(outcome: Resolution | None, failure: Failure | None) -> None:
            raise AssertionError("only the shell calls it")

        return self.do(self.state.answer_approval(question.id, allow, answered, self.now_s))

    def settle(self, question: Question, failure: Failure | None = None) -> list[Any]:
        return self.do(self.state.approval_settled(question.id, failure))

    def holds(self) -> list[bool]:
        """What the worker was told of its clock; it answers each."""
        told = [e for e in self.seen if isinstance(e, Asked) and isinstance(e.body, TurnHold)]
        return [e.body.held for e in told]

    def answer_holds(self) -> None:
        for event in list(self.seen):
            if isinstance(event, Asked) and isinstance(event.body, TurnHold) and event.id not in self.told:
                self.told.add(event.id)
                self.says(self.worker.reply(event.id, Done()))

    told: set[int] = field(default_factory=set)


@pytest.fixture
def house() -> Asking:
    return Asking()


def said(spec: TurnSpec) -> list[Any]:
    assert isinstance(spec.sink, FakeSink)
    return list(spec.sink.items)


def test_a_tool_that_was_allowed_may_act_once_and_only_as_it_was_shown(house: Asking) -> None:
    house.warm(spec := house.spec())
    request, question = house.ask()
    assert said(spec) == [
        ApprovalWanted("approval_1", "tool", "run_command", ARGUMENTS, 1_060, 1),
    ]
    assert house.answer(question, True) == [SettleApproval(question, "allowed")]
    assert house.last().body == TurnHold(ONE, True), "nothing is let go before it is written down"
    house.settle(question)
    assert said(spec)[1:] == [ApprovalResolved("approval_1", "allowed")]
    assert house.answers == [("allowed", None)]
    assert any(isinstance(e, Replied) and e.id == request for e in house.seen)

    _, rest = house.asks(StepBegin(ONE, 1, "run_command", '{"command": "rm -rf /"}'))
    assert (rest, house.last().failure.code) == ([], "approval_required")
    _, rest = house.asks(StepBegin(ONE, 1, "run_command", ARGUMENTS))
    assert [type(i) for i in rest] == [Serve]
    _, rest = house.asks(StepBegin(ONE, 1, "run_command", ARGUMENTS))
    assert (rest, house.last().failure.code) == ([], "approval_required")


def test_a_step_of_a_tool_that_is_to_be_asked_about_is_refused_unasked_and_another_is_not(
    house: Asking,
) -> None:
    house.warm(house.spec())
    _, rest = house.asks(StepBegin(ONE, 1, "run_command", ARGUMENTS))
    assert (rest, house.last().failure.code) == ([], "approval_required")
    _, rest = house.asks(StepBegin(ONE, 2, "read_file", "{}"))
    assert [type(i) for i in rest] == [Serve]
    _, rest = house.asks(ApprovalAsk(ONE, 3, "read_file", "{}"))
    assert (rest, house.last().failure.code) == ([], "invalid")


@pytest.mark.parametrize("allow", [True, False])
def test_the_first_answer_counts_and_a_second_is_told_so(house: Asking, allow: bool) -> None:
    house.warm(spec := house.spec())
    request, question = house.ask()
    house.answer(question, allow)
    assert [i.outcome for i in house.answer(question, not allow)] == [None]
    house.settle(question)
    assert house.answer(question, not allow)[0].outcome is None
    outcome = "allowed" if allow else "refused"
    assert house.answers == [(None, None), (outcome, None), (None, None)]
    assert said(spec)[1:] == [ApprovalResolved("approval_1", outcome)]  # type: ignore[arg-type]
    closed = [e for e in house.seen if isinstance(e, Replied | Failed) and e.id == request]
    if allow:
        assert closed == [Replied(request, Done())]
    else:
        assert closed == [Failed(request, Failure("refused", "the person who was asked refused"))]


def test_nobody_answering_is_a_refusal(house: Asking) -> None:
    house.warm(spec := house.spec())
    _, question = house.ask()
    assert house.state.next_deadline_s() == 160.0
    house.now_s = 159.0
    assert house.do(house.state.tick(house.now_s)) == []
    house.now_s = 160.0
    assert house.answer(question, True)[0].outcome is None, "too late, though the tick is later still"
    assert house.do(house.state.tick(house.now_s)) == [SettleApproval(question, "expired")]
    house.settle(question)
    assert said(spec)[1:] == [ApprovalResolved("approval_1", "expired")]
    assert house.last().failure.code == "refused"


def test_the_turns_time_stands_still_while_a_person_is_asked_and_goes_on_after(house: Asking) -> None:
    house.warm(spec := house.spec(wall_s=10))
    house.now_s += 8
    _, question = house.ask()
    assert house.holds() == [True]
    house.answer_holds()
    house.now_s += 50
    assert house.do(house.state.tick(house.now_s)) == []
    house.answer(question, True)
    house.settle(question)
    assert house.holds() == [True, False]
    house.now_s += 6  # with the margin that a worker has to report, 15 s in all
    assert house.do(house.state.tick(house.now_s)) == []
    house.now_s += 2
    house.do(house.state.tick(house.now_s))
    house.now_s += 3
    assert Kill(1, "cancel_ignored") in house.do(house.state.tick(house.now_s))
    assert house.sink(spec).outcome.code == "limit"  # type: ignore[union-attr]


def test_the_worker_is_told_of_its_clock_once_at_a_time_and_in_the_end_rightly(house: Asking) -> None:
    house.warm(house.spec())
    for step in range(1, 4):
        _, question = house.ask(step)
        house.answer(question, True)
        house.settle(question)
    assert house.holds() == [True], "it has not answered the first"
    house.answer_holds()
    assert house.holds() == [True, False]
    house.answer_holds()
    assert house.holds() == [True, False]


def test_a_turn_waits_for_people_only_so_long_in_all(house: Asking) -> None:
    house.warm(house.spec())
    for step, wait_s in ((1, 59), (2, 40)):
        _, question = house.ask(step)
        house.now_s += wait_s
        house.answer(question, False)
        house.settle(question)
    _, question = house.ask(3)
    assert question.deadline_s == house.now_s + 1
    house.now_s += 1
    house.do(house.state.tick(house.now_s))
    house.settle(question)
    _, rest = house.asks(ApprovalAsk(ONE, 4, "run_command", ARGUMENTS))
    assert rest == []
    assert house.last().failure == Failure("refused", "this turn has waited 100 s for its person already")


def test_so_many_may_wait_for_one_person_and_no_more(house: Asking) -> None:
    house.warm(house.spec())
    house.start(house.spec(TWO))
    _, first = house.ask(1)
    house.ask(1, TWO)
    _, rest = house.asks(ApprovalAsk(ONE, 2, "run_command", ARGUMENTS))
    assert (rest, house.last().failure.code) == ([], "refused")
    house.answer(first, False)
    house.settle(first)
    house.ask(3)


def test_a_cancelled_turn_asks_no_longer(house: Asking) -> None:
    house.warm(spec := house.spec())
    request, question = house.ask()
    rest = house.do(house.state.cancel_turn(ONE, house.now_s))
    assert rest == [SettleApproval(question, "ended")]
    assert said(spec)[1:] == [ApprovalResolved("approval_1", "ended")]
    assert any(isinstance(e, Failed) and e.id == request for e in house.seen)
    assert house.answer(question, True)[0].outcome is None
    _, rest = house.asks(ApprovalAsk(ONE, 2, "run_command", ARGUMENTS))
    assert (rest, house.last().failure.code) == ([], "cancelled")
    # its two seconds run, though it was held
    assert house.state.next_deadline_s() == house.now_s + 2
    assert house.settle(question) == []


def test_an_answer_on_its_way_to_the_disk_does_not_outlive_its_turn(house: Asking) -> None:
    turn = house.warm(spec := house.spec())
    _, question = house.ask()
    house.answer(question, True)
    house.says(house.worker.reply(turn, TurnEnd("stop")))
    assert said(spec)[1:] == [ApprovalResolved("approval_1", "allowed")]
    assert house.sink(spec).outcome == TurnEnd("stop")
    assert [type(i) for i in house.settle(question)] == [TellAnswered]
    assert len(said(spec)) == 2


def test_a_jail_that_ends_takes_its_questions_along(house: Asking) -> None:
    house.warm(spec := house.spec())
    _, question = house.ask()
    rest = house.do(house.state.jail_closed(1, None, house.now_s))
    assert SettleApproval(question, "ended") in rest
    assert said(spec)[1:] == [ApprovalResolved("approval_1", "ended")]
    house.do(house.state.jail_exited(1, "signal 9", house.now_s))
    assert house.settle(question) == []
    assert house.state.next_deadline_s() is None


def test_a_worker_may_take_its_question_back(house: Asking) -> None:
    house.warm(spec := house.spec(wall_s=10))
    request, question = house.ask()
    house.now_s += 30
    assert house.says(house.worker.cancel(request)) == [SettleApproval(question, "ended")]
    assert said(spec)[1:] == [ApprovalResolved("approval_1", "ended")]
    assert house.state.next_deadline_s() == house.now_s + 15


def test_a_worker_that_asks_and_takes_back_without_end_is_bounded_by_what_is_under_way(house: Asking) -> None:
    house.warm(house.spec())
    kept = 0
    for _ in range(20):
        request, rest = house.asks(ApprovalAsk(ONE, 1, "run_command", ARGUMENTS))
        kept += bool(rest)  # and the disk does not answer
        if rest:
            house.says(house.worker.cancel(request))
    assert kept == 4 * RULES.most
    assert house.last().failure.code == "overloaded"


def test_a_turn_asks_so_many_questions_and_no_more_whatever_becomes_of_them(house: Asking) -> None:
    house.warm(house.spec())
    for step in range(1, 201):
        _, question = house.ask(step)
        house.answer(question, False)
        house.settle(question)
        house.answer_holds()
    _, rest = house.asks(ApprovalAsk(ONE, 201, "run_command", ARGUMENTS))
    assert (rest, house.last().failure.code) == ([], "limit")


@pytest.mark.parametrize(
    ("body", "shown"),
    [(b"to=me&text=hello", "to=me&text=hello"), (b"\xff\x00\x01", "(3 bytes that are no text)")],
)
def test_a_person_is_shown_what_a_fetch_would_send(house: Asking, body: bytes, shown: str) -> None:
    house.modes["http.fetch"] = "ask"
    house.warm(spec := house.spec())
    fetch = HttpFetch(ONE, "0" * 16, "POST", "https://api.example.com/send", body=body)
    _, rest = house.asks(fetch)
    house.do(house.state.approval_kept(rest[0].question.id, None, house.now_s))
    (wanted,) = said(spec)
    asked = msgspec.json.decode(wanted.arguments)
    assert (asked["url"], asked["body"]) == ("https://api.example.com/send", shown)


def test_what_cannot_be_written_down_is_not_asked_and_not_allowed(house: Asking) -> None:
    full = Failure("unavailable", "not stored, the disk is full: tell the operator")
    house.warm(spec := house.spec())
    _, rest = house.asks(ApprovalAsk(ONE, 1, "run_command", ARGUMENTS))
    house.do(house.state.approval_kept(rest[0].question.id, full, house.now_s))
    assert full in [e.failure for e in house.seen if isinstance(e, Failed)]
    assert said(spec) == []
    _, question = house.ask(2)
    house.answer(question, True)
    house.settle(question, full)
    assert [e.failure for e in house.seen if isinstance(e, Failed)] == [full, full]
    assert house.answers == [("allowed", full)]
    _, rest = house.asks(StepBegin(ONE, 2, "run_command", ARGUMENTS))
    assert (rest, house.last().failure.code) == ([], "approval_required")


def test_a_turn_that_ends_before_its_question_is_written_down_shows_nobody_anything(house: Asking) -> None:
    turn = house.warm(spec := house.spec())
    _, rest = house.asks(ApprovalAsk(ONE, 1, "run_command", ARGUMENTS))
    question = rest[0].question
    assert house.says(house.worker.reply(turn, TurnEnd("stop"))) == [SettleApproval(question, "ended")]
    house.do(house.state.approval_kept(question.id, None, house.now_s))
    assert house.settle(question) == []
    assert said(spec) == []


def test_a_verb_marked_ask_reaches_its_service_only_once_allowed(house: Asking) -> None:
    house.modes["provider.chat"] = "ask"
    house.warm(spec := house.spec())
    body = ProviderChat(ONE, (Message("user", "hello " * 10_000),))
    request, rest = house.asks(body)
    (kept,) = rest
    assert isinstance(kept, KeepApproval)
    wanted = kept.question.wanted
    assert (wanted.kind, wanted.name, wanted.step, wanted.cut) == ("verb", "provider.chat", 0, True)
    assert wanted.arguments.startswith('{"provider":"p","model":"m","messages":1,"last":"hello hello')
    assert len(wanted.arguments) == SHOWN_CHARS
    house.do(house.state.approval_kept(wanted.approval, None, house.now_s))
    assert house.says(house.worker.grant(request, 1)) == [], "its service has not heard of it"
    house.answer(kept.question, True)
    assert house.settle(kept.question)[-1] == Serve(spec, 1, request, "provider.chat", body)
    assert house.says(house.worker.grant(request, 1)) == [Credit(1, request, "provider.chat", 1)]
    house.do(house.state.answered(1, request, ChatEnd("stop")))
    assert isinstance(house.last(), Replied)
    # the control: the next is asked again, and refused
    request, rest = house.asks(replace(body, messages=(Message("user", "and?"),)))
    house.do(house.state.approval_kept(rest[0].question.id, None, house.now_s))
    house.answer(rest[0].question, False)
    assert [type(i) for i in house.settle(rest[0].question)] == [TellAnswered]
    assert (house.last().id, house.last().failure.code) == (request, "refused")


def test_a_verb_that_waits_for_a_person_is_not_cancelled_at_its_service(house: Asking) -> None:
    house.modes["provider.chat"] = "ask"
    house.warm(house.spec())
    _, rest = house.asks(ProviderChat(ONE, (Message("user", "hello"),)))
    done = house.do(house.state.cancel_turn(ONE, house.now_s))
    assert [type(i) for i in done] == [SettleApproval]
    # the control: one that was allowed is
    house = Asking({"provider.chat": "ask"})
    house.warm(house.spec())
    _, rest = house.asks(ProviderChat(ONE, (Message("user", "hello"),)))
    house.do(house.state.approval_kept(rest[0].question.id, None, house.now_s))
    house.answer(rest[0].question, True)
    house.settle(rest[0].question)
    assert [type(i) for i in house.do(house.state.cancel_turn(ONE, house.now_s))] == [Cancel]


def test_a_jail_with_a_question_is_busy_and_not_evicted(house: Asking) -> None:
    turn = house.warm(house.spec())
    _, question = house.ask()
    assert house.used == [(1, True)]
    assert house.do(house.state.evict(1, False, house.now_s)) == []
    assert house.state.phase == "ready"
    house.answer(question, False)
    house.settle(question)
    house.says(house.worker.reply(turn, TurnEnd("stop")))
    assert house.used[-1] == (1, False)


def test_cores_own_events_cost_the_worker_no_credit_and_give_it_none(house: Asking) -> None:
    turn = house.warm(spec := house.spec())
    _, question = house.ask()
    house.answer(question, False)
    house.settle(question)
    house.says(house.worker.item(turn, Delta("x")))
    assert len(said(spec)) == 3
    assert house.worker.credit(turn) == 15
