"""The window's rule: system stays, oldest whole exchanges go, calls stay with their results."""

from hypothesis import given, settings
from hypothesis import strategies as st

from jail.peer.context import Window, cost_bytes, fit, repair
from jail.wire.frames import Kind, decode_frame, encode_frame
from jail.wire.schema import Limits, Message, Picture, ProviderChat, ToolCall, to_wire


def limits(context_bytes: int = 4_096, context_messages: int = 600) -> Limits:
    """Limits with this window."""
    return Limits(context_bytes=context_bytes, context_messages=context_messages)


def user(text: str) -> Message:
    """A user's message."""
    return Message("user", text)


def said(text: str) -> Message:
    """An assistant's message."""
    return Message("assistant", text)


def used(name: str, *results: str) -> list[Message]:
    """A round with one call for each result."""
    calls = tuple(ToolCall(f"{name}{n}", "tool", "{}") for n in range(len(results)))
    return [
        Message("assistant", "", calls),
        *(Message("tool", r, tool_call_id=f"{name}{n}") for n, r in enumerate(results)),
    ]


def test_all_of_a_short_session_is_shown_behind_the_prompt() -> None:
    history = [user("a"), said("b"), Message("system", "s"), user("c")]

    window = fit("prompt", history, limits())

    expected = [
        Message("system", "prompt"),
        Message("system", "s"),
        user("a"),
        said("b"),
        user("c"),
    ]
    assert window == Window(expected, 0, False)


def test_without_a_prompt_there_is_no_empty_system_message() -> None:
    assert fit("", [user("a")], limits()).messages == [user("a")]


def test_the_oldest_exchanges_go_first_and_whole() -> None:
    history = []
    for n in range(4):
        history += [user(f"q{n}"), *used(f"c{n}", "x" * 900), said(f"a{n}")]
    history.append(user("last"))

    window = fit("", history, limits())

    assert window.dropped == 4
    assert window.messages == history[4:]


def test_the_number_of_messages_is_a_limit_too() -> None:
    history = [message for n in range(10) for message in (user(f"q{n}"), said(f"a{n}"))]

    window = fit("p", [*history, user("last")], limits(context_messages=6))

    assert [message.text for message in window.messages] == ["p", "q8", "a8", "q9", "a9", "last"]
    assert window.dropped == 16


def test_a_long_last_exchange_loses_its_oldest_rounds_and_keeps_its_question() -> None:
    history = [user("before"), said("x"), user("question")]
    for n in range(6):
        history += used(f"r{n}", "x" * 900)

    window = fit("", history, limits())

    assert window.messages[0] == user("question")
    assert window.messages[1:] == history[-6:]
    assert window.dropped == len(history) - len(window.messages)


def test_a_last_round_that_is_too_long_keeps_its_calls_and_shows_results_in_part() -> None:
    round_ = used("r", "a" * 20_000, "b" * 20_000)

    window = fit("", [user("question"), *round_], limits())

    assert window.cut
    assert window.messages[:2] == [user("question"), round_[0]]
    assert [message.tool_call_id for message in window.messages[2:]] == ["r0", "r1"]
    assert all("bytes left out" in message.text for message in window.messages[2:])
    assert sum(map(cost_bytes, window.messages)) <= 4_096


def test_a_question_too_long_for_the_window_is_cut_in_the_middle() -> None:
    window = fit("p", [user("begin" + "x" * 50_000 + "end")], limits())

    (message,) = window.messages[1:]
    assert window.cut
    assert message.text.startswith("begin")
    assert message.text.endswith("end")
    assert sum(map(cost_bytes, window.messages)) <= 4_096


def test_system_messages_leave_half_of_the_window() -> None:
    window = fit("p" * 3_000, [Message("system", "s" * 3_000), user("q" * 1_000)], limits())

    assert [message.role for message in window.messages] == ["system", "system", "user"]
    assert window.messages[2] == user("q" * 1_000)
    assert sum(map(cost_bytes, window.messages)) <= 4_096


def test_calls_and_results_that_lost_each_other_are_mended() -> None:
    orphan = Message("tool", "x", tool_call_id="gone")
    (call, first, _second) = used("c", "one", "two")

    mended = repair([orphan, user("a"), call, first, user("b")])

    assert mended[:3] == [user("a"), call, first]
    assert (mended[3].role, mended[3].tool_call_id) == ("tool", "c1")
    assert mended[4] == user("b")
    assert repair([call])[1:] != []


texts = st.text(max_size=40).flatmap(lambda t: st.integers(0, 60).map(lambda n: t * n))
calls = st.lists(st.builds(ToolCall, st.sampled_from("abc"), st.just("tool"), texts), max_size=3).map(tuple)
messages = (
    st.builds(Message, st.sampled_from(["system", "user", "assistant"]), texts)
    | st.builds(Message, st.just("assistant"), texts, calls)
    | st.builds(Message, st.just("tool"), texts, st.just(()), st.sampled_from(["a", "b", "c", "gone"]))
)


@settings(deadline=None)
@given(st.text(max_size=3_000), st.lists(messages, max_size=30), texts, st.integers(4, 20))
def test_whatever_the_session_the_window_holds(
    prompt: str, history: list[Message], last: str, context_messages: int
) -> None:
    history = [*history, user(last)]

    window = fit(prompt, history, limits(context_messages=context_messages))

    shown = window.messages
    assert sum(map(cost_bytes, shown)) <= 4_096
    assert len(shown) <= context_messages
    assert shown[-1].role == "user"
    assert window.cut or shown[-1].text == last
    assert repair([m for m in shown if m.role != "system"]) == [m for m in shown if m.role != "system"]


@settings(deadline=None, max_examples=8)
@given(
    st.text(min_size=1, max_size=50),
    st.sampled_from([1, 5, 64]),
    st.sampled_from(
        [None, Picture("p", "image/png", 1, "c"), Picture("é" * 4_096, "image/png", 1, "é" * 500)]
    ),
)
def test_the_largest_window_fits_a_frame(letter: str, calls_each: int, picture: Picture | None) -> None:
    many = tuple(ToolCall(f"c{n}", "t", "{}") for n in range(calls_each))
    results = [Message("tool", "r", tool_call_id=call.id, picture=picture) for call in many]
    history = [user(letter * 20_000)]
    for _ in range(900 // (calls_each + 1)):
        history += [Message("assistant", letter * 50, many), *results]

    window = fit("p", history, limits(700_000, 1_000))

    body = ProviderChat("turn_0123456789abcdef", tuple(window.messages))
    assert decode_frame(encode_frame(Kind.REQUEST, 1, to_wire(body))).id == 1
