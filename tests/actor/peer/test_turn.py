"""A turn in a real worker process, against a scripted model."""

import json
import time

from jail.wire.schema import (
    ChatCall,
    ChatDelta,
    ChatEnd,
    Delta,
    Failure,
    Message,
    Notice,
    ProviderChat,
    SessionAppend,
    StepBegin,
    StepEnd,
    ToolCall,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    TurnEnd,
    Usage,
)
from tests.actor.peer.conftest import Start
from tests.actor.peer.scripts import agent, call, say, use
from tests.fakes.core_end import Answer


def test_an_answer_streams_and_is_kept(start: Start) -> None:
    core = start(say("Hel", "lo")).core

    log = core.run_turn(agent())

    assert log.text == "Hello"
    assert log.outcome == TurnEnd("stop", Usage(1, 1))
    assert core.appended == [Message("assistant", "Hello")]
    assert core.chats[0].messages == (
        Message("system", "You are a test."),
        Message("user", "Hello"),
    )
    assert core.software.startswith("certosa-worker")


def test_reasoning_is_streamed_and_not_kept(start: Start) -> None:
    core = start(Answer([ChatDelta(reasoning="Hm"), ChatDelta("Yes")])).core

    log = core.run_turn(agent())

    assert log.items == [Delta(reasoning="Hm"), Delta("Yes")]
    assert core.appended == [Message("assistant", "Yes")]


def test_a_stream_far_longer_than_the_window_arrives_whole(start: Start) -> None:
    pieces = [f"{n} " for n in range(1_000)]
    core = start(say(*pieces)).core

    log = core.run_turn(agent())

    assert log.text == "".join(pieces)


def test_without_credit_text_is_merged_and_the_model_is_held_back(start: Start) -> None:
    pieces = ["x" * 1_000] * 200
    core = start(say(*pieces)).core
    core.grants = False

    log = core.start_turn(agent())
    # 16 passed on, 33 merged, and the credit of what was consumed
    core.pump(lambda: core.items_sent == 64)
    core.settle()
    assert core.items_sent == 64, "nobody held the model back"
    core.grants = True
    core.grant(log, 16)
    core.pump(lambda: log.outcome is not None)

    assert log.text == "".join(pieces)
    assert len(log.items[16].text) > 20_000, "what waited was not merged"


def test_tools_run_in_order_between_acknowledged_steps(start: Start) -> None:
    core = start(
        use(
            call("write_file", "a", path="notes/x.txt", content="one\ntwo\n"),
            call("read_file", "b", path="notes/x.txt"),
            before=[ChatDelta("Writing.")],
        ),
        say("Done."),
    ).core

    log = core.run_turn(agent())

    assert core.steps == [
        StepBegin("turn_0000000000000001", 1, "write_file", core.steps[0].arguments),  # type: ignore[union-attr]
        StepEnd("turn_0000000000000001", 1, True),
        StepBegin("turn_0000000000000001", 2, "read_file", '{"path": "notes/x.txt"}'),
        StepEnd("turn_0000000000000001", 2, True),
    ]
    assert [type(item) for item in log.items] == [
        Delta,
        ToolStarted,
        ToolEnded,
        ToolStarted,
        ToolEnded,
        Delta,
    ]
    assert log.text == "Writing.\n\nDone.", "the client sees two messages of the model as two paragraphs"
    assert [message.role for message in core.appended] == ["assistant", "tool", "tool", "assistant"]
    assert core.appended[2] == Message("tool", "one\ntwo\n", tool_call_id="b")
    assert core.chats[1].messages[-3:] == tuple(core.appended[:3])


def test_what_the_model_gets_wrong_goes_back_to_it(start: Start) -> None:
    calls = [
        call("no_such_tool", "a"),
        call("run_command", "b", command="true"),
        ChatCall(ToolCall("c", "read_file", "not json")),
        ChatCall(ToolCall("d", "read_file", "[1]")),
        ChatCall(ToolCall("e", "read_file", '{"path": 7}')),
        ChatCall(ToolCall("f", "read_file", '{"path": "x", "mode": "r"}')),
        ChatCall(ToolCall("g", "read_file", "[" * 50_000)),
    ]
    core = start(use(*calls), say("Sorry.")).core

    log = core.run_turn(agent("read_file"))

    ended = log.of(ToolEnded)
    assert [item.ok for item in ended] == [False] * 7
    assert "no tool of that name" in ended[0].text
    assert "There are: read_file" in ended[1].text
    assert all("JSON object" in item.text for item in ended[2:])
    assert core.steps == [], "nothing acted, so nothing is journalled"
    assert log.outcome == TurnEnd("stop", Usage(2, 2))


def test_a_step_core_refuses_does_not_act(start: Start) -> None:
    pair = start(use(call("write_file", path="x", content="x")), say("I may not."))
    pair.core.refuse[StepBegin] = Failure("refused", "write_file is off")

    log = pair.core.run_turn(agent())

    (ended,) = log.of(ToolEnded)
    assert (ended.ok, ended.text) == (False, "Not allowed: write_file is off")
    assert not (pair.worker.home / "x").exists()


def test_calls_without_an_id_of_their_own_get_one(start: Start) -> None:
    core = start(use(call("list_files", ""), call("list_files", "")), say("Done.")).core

    core.run_turn(agent())

    ids = [item.id for item in core.appended[0].tool_calls]
    assert len(set(ids)) == 2
    assert "" not in ids
    assert [message.tool_call_id for message in core.appended[1:3]] == ids


def test_an_error_of_the_model_ends_the_turn_with_the_same_error(start: Start) -> None:
    failure = Failure("upstream_rate_limit", "slow down", 7)
    core = start(Answer([ChatDelta("Half an ")], failure)).core

    log = core.run_turn(agent())

    assert log.outcome == failure
    assert log.text == "Half an "
    assert core.appended == [
        Message("assistant", "Half an \n\n[cut short: the turn failed (upstream_rate_limit)]")
    ]


def test_an_error_before_any_text_keeps_nothing(start: Start) -> None:
    core = start(Answer([], Failure("upstream", "500"))).core

    log = core.run_turn(agent())

    assert log.outcome == Failure("upstream", "500")
    assert core.appended == []


def test_a_session_that_cannot_be_written_ends_the_turn(start: Start) -> None:
    core = start(say("Hello")).core
    core.refuse[SessionAppend] = Failure("unavailable", "the store is down")

    assert core.run_turn(agent()).outcome == Failure("unavailable", "the store is down")


def test_a_session_without_a_user_message_is_refused(start: Start) -> None:
    core = start(say("Hello"), history=[]).core

    outcome = core.run_turn(agent()).outcome

    assert isinstance(outcome, Failure)
    assert outcome.code == "invalid"


def test_cancelling_mid_stream_keeps_what_was_said(start: Start) -> None:
    core = start(Answer([ChatDelta("Once upon")], None)).core
    log = core.start_turn(agent())
    core.pump(lambda: log.text == "Once upon")

    began = time.monotonic()
    core.cancel(log)
    core.pump(lambda: log.outcome is not None, timeout_s=2)

    assert time.monotonic() - began < 2
    assert log.outcome == Failure("cancelled", "the turn was cancelled")
    assert core.cancelled_chats == 1
    assert core.appended == [Message("assistant", "Once upon\n\n[cut short: the turn was cancelled]")]


def test_cancelling_mid_tool_kills_its_tree_and_records_what_began(start: Start) -> None:
    command = "trap '' TERM; (setsid sh -c 'echo inner $$; exec sleep 300' &) ; sleep 301"
    pair = start(
        use(
            call("run_command", "a", command="echo first"),
            call("run_command", "b", command=command),
            call("run_command", "c", command="echo never"),
        )
    )
    log = pair.core.start_turn(agent())
    pair.core.pump(lambda: any("inner" in item.text for item in log.of(ToolProgress)))

    pair.core.cancel(log)
    pair.core.pump(lambda: log.outcome is not None, timeout_s=2)

    assert log.outcome == Failure("cancelled", "the turn was cancelled")
    assert pair.worker.descendants() == []
    results = {message.tool_call_id: message.text for message in pair.core.appended[1:]}
    assert results["a"] == "first\n[exit status 0]"
    assert "part of it may have been done" in results["b"]
    assert "not run" in results["c"]


def test_a_cancelled_turn_does_not_wait_for_a_core_that_takes_nothing(start: Start) -> None:
    core = start(say(*["x" * 3_000] * 100)).core
    core.grants = False
    log = core.start_turn(agent())
    core.pump(lambda: len(log.items) == 16)

    core.cancel(log)
    core.pump(lambda: log.outcome is not None, timeout_s=2)

    assert log.outcome == Failure("cancelled", "the turn was cancelled")


def test_the_limit_of_rounds_ends_a_turn_with_a_notice(start: Start) -> None:
    core = start(*[use(call("run_command", command=f"echo {n}")) for n in range(9)]).core

    log = core.run_turn(agent(rounds=3))

    assert isinstance(log.outcome, TurnEnd)
    assert log.outcome.finish == "rounds"
    assert isinstance(log.items[-1], Notice)
    assert len(core.chats) == 3
    assert [message.role for message in core.appended] == ["assistant", "tool"] * 3


def test_the_limit_of_output_tokens_ends_a_turn(start: Start) -> None:
    answer = Answer([call("list_files")], ChatEnd("tool_calls", Usage(5, 60)))
    core = start(answer, answer, answer).core

    outcome = core.run_turn(agent(output_tokens=100)).outcome

    assert outcome == TurnEnd("length", Usage(10, 120))


def test_tokens_nobody_counted_are_estimated(start: Start) -> None:
    answer = Answer([ChatDelta("x" * 400), call("list_files")], ChatEnd("tool_calls"))
    core = start(answer, answer, answer).core

    log = core.run_turn(agent(output_tokens=150))

    assert isinstance(log.outcome, TurnEnd)
    assert log.outcome.finish == "length"
    assert len(core.chats) == 2


def test_the_same_call_again_and_again_ends_a_turn(start: Start) -> None:
    core = start(*[use(call("run_command", command="date +%N"))] * 9).core

    log = core.run_turn(agent(repeats=3))

    assert isinstance(log.outcome, TurnEnd)
    assert log.outcome.finish == "repeats"
    assert len(core.steps) == 6, "three calls acted, the fourth did not"
    assert len(log.of(Notice)) == 1


def test_rounds_that_only_fail_end_a_turn(start: Start) -> None:
    core = start(*[use(call("read_file", path=f"missing-{n}")) for n in range(9)]).core

    log = core.run_turn(agent(failing_rounds=2))

    assert isinstance(log.outcome, TurnEnd)
    assert log.outcome.finish == "failing"
    assert len(core.chats) == 2


def test_the_wall_clock_ends_a_turn_and_keeps_what_was_said(start: Start) -> None:
    core = start(Answer([ChatDelta("Slowly")], None)).core

    log = core.run_turn(agent(wall_s=1))

    assert isinstance(log.outcome, TurnEnd)
    assert log.outcome.finish == "wall"
    assert core.cancelled_chats == 1
    assert "Slowly" in core.appended[0].text
    assert isinstance(log.items[-1], Notice)


def test_an_answer_longer_than_a_message_may_be_is_cut(start: Start) -> None:
    core = start(Answer([ChatDelta("x" * 90_000)] * 6, None)).core

    log = core.run_turn(agent())

    assert isinstance(log.outcome, TurnEnd)
    assert log.outcome.finish == "length"
    assert core.cancelled_chats == 1
    assert len(core.appended[0].text) > 400_000


def test_a_long_session_is_seen_from_its_end_with_one_notice(start: Start) -> None:
    history = [Message("system", "Be brief.")]
    for n in range(300):
        history += [Message("user", f"question {n} " + "q" * 200), Message("assistant", "a" * 200)]
    history.append(Message("user", "the last question"))
    core = start(use(call("list_files")), say("Yes."), history=history).core

    log = core.run_turn(agent(context_bytes=8_000))

    messages = core.chats[0].messages
    assert messages[0].text == "You are a test."
    assert messages[1].text == "Be brief."
    assert messages[2].role == "user"
    assert messages[-1].text == "the last question"
    dropped = len(history) + 1 - len(messages)
    (notice,) = log.of(Notice)
    assert f"oldest {dropped} messages" in notice.text


def test_an_oversized_result_is_stored_and_shown_in_part(start: Start) -> None:
    code = "print('begin' + 'x' * 50_000 + 'end')"
    pair = start(use(call("run_python", code=code)), say("Long."))

    log = pair.core.run_turn(agent(tool_result_bytes=2_000))

    (ended,) = log.of(ToolEnded)
    assert len(ended.text.encode()) <= 2_000
    assert ended.text.startswith("beginxxx")
    name = ".certosa/results/turn_0000000000000001-1.txt"
    assert name in ended.text
    whole = (pair.worker.home / name).read_text()
    assert whole.startswith("begin" + "x" * 50_000 + "end")
    assert pair.core.appended[1].text == ended.text


def test_several_turns_run_at_once(start: Start) -> None:
    core = start(Answer([ChatDelta("one")], None), say("two")).core
    first = core.start_turn(agent(), "turn_0000000000000001")
    core.pump(lambda: first.text == "one")

    second = core.start_turn(agent(), "turn_0000000000000002")
    core.pump(lambda: second.outcome is not None)

    assert second.text == "two"
    assert first.outcome is None
    assert {chat.turn for chat in core.chats} == {"turn_0000000000000001", "turn_0000000000000002"}


def test_a_turn_past_the_bound_is_refused_and_the_others_go_on(start: Start) -> None:
    core = start(*[Answer([], None)] * 16).core
    running = [core.start_turn(agent(), f"turn_{n:016x}") for n in range(16)]
    core.pump(lambda: len(core.chats) == 16)

    refused = core.run_turn(agent())

    assert isinstance(refused.outcome, Failure)
    assert refused.outcome.code == "overloaded"
    assert [log.outcome for log in running] == [None] * 16


def test_arguments_travel_as_the_model_wrote_them(start: Start) -> None:
    text = json.dumps({"path": "ü.txt", "content": "\u2028 ü"}, ensure_ascii=False)
    pair = start(use(ChatCall(ToolCall("c", "write_file", text))), say("Done."))

    log = pair.core.run_turn(agent())

    assert log.of(ToolStarted)[0].arguments == text
    assert (pair.worker.home / "ü.txt").read_text() == "\u2028 ü"
    assert isinstance(pair.core.chats[1], ProviderChat)


def test_a_cancelled_turn_does_not_wait_for_a_store_that_is_silent(start: Start) -> None:
    core = start(say("Hello")).core
    core.silent.add(SessionAppend)
    log = core.start_turn(agent())
    core.pump(lambda: bool(core.unanswered))

    core.cancel(log)
    core.pump(lambda: log.outcome is not None, timeout_s=2)

    assert log.outcome == Failure("cancelled", "the turn was cancelled")
    assert len(core.unanswered) == 1, "what was under way is not appended twice"


def test_a_cancelled_turn_does_not_wait_for_a_disk_that_is_stuck(start: Start) -> None:
    before = "import os, time; os.rename = lambda a, b: time.sleep(600)"
    pair = start(use(call("write_file", path="x", content="y")), before=before)
    log = pair.core.start_turn(agent())
    pair.core.pump(lambda: bool(list(pair.worker.home.glob(".certosa-*"))))

    pair.core.cancel(log)
    pair.core.pump(lambda: log.outcome is not None, timeout_s=2)

    assert log.outcome == Failure("cancelled", "the turn was cancelled")


def test_text_that_waits_for_credit_still_comes_before_an_error(start: Start) -> None:
    failure = Failure("upstream", "cut")
    core = start(Answer([ChatDelta("ab "), ChatDelta(reasoning="r")] * 15, failure)).core
    core.grants = False
    log = core.start_turn(agent())
    core.pump(lambda: bool(core.appended))

    core.grant(log, 32)
    core.pump(lambda: log.outcome is not None)

    assert log.text == "ab " * 15
    assert log.outcome == failure
