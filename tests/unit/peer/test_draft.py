"""What is kept of a round, however it ends, and that it fits the frames it travels in."""

from hypothesis import given, settings
from hypothesis import strategies as st

from jail.peer.draft import MAX_MESSAGE_BYTES, Draft, batches
from jail.wire.frames import Kind, decode_frame, encode_frame
from jail.wire.schema import Message, Picture, SessionAppend, ToolCall, to_wire


def draft(text: str, *call_ids: str) -> Draft:
    """A draft with this text and these calls."""
    made = Draft()
    made.add_text(text)
    for call_id in call_ids:
        made.add_call(ToolCall(call_id, "tool", "{}"))
    return made


def test_a_model_that_said_nothing_leaves_nothing() -> None:
    assert Draft().whole() == []
    assert Draft().cut_short("x") == []


def test_text_cut_short_is_marked() -> None:
    assert draft("Half").cut_short("why") == [Message("assistant", "Half\n\n[cut short: why]")]


def test_calls_that_were_not_begun_are_left_out() -> None:
    assert draft("", "a").cut_short("why") == []


def test_every_call_has_its_result_when_one_was_begun() -> None:
    made = draft("Go", "a", "b", "c")
    made.begun = 2
    made.add_result(made.calls[0], "done")

    first, *results = made.cut_short("why")

    assert first == Message("assistant", "Go", tuple(made.calls))
    assert results == [
        Message("tool", "done", tool_call_id="a"),
        Message("tool", "[cut short, part of it may have been done: why]", tool_call_id="b"),
        Message("tool", "[not run: why]", tool_call_id="c"),
    ]


@settings(deadline=None)
@given(st.lists(st.sampled_from(["", "a", "b", "call_1"]), max_size=20))
def test_ids_are_never_shared(ids: list[str]) -> None:
    got = [call.id for call in draft("", *ids).calls]

    assert len(set(got)) == len(ids)
    assert "" not in got


def test_a_message_is_bounded_in_bytes_and_calls() -> None:
    made = draft("ü" * (MAX_MESSAGE_BYTES // 2))
    before = made.full
    made.add_text("x")
    assert (before, made.full) == (False, True)
    assert draft("", *[str(n) for n in range(65)]).full


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 200_000), min_size=1, max_size=200),
    st.none() | st.just(Picture("\U0001f600" * 4_096, "image/jpeg", 1 << 24, "\U0001f600" * 500)),
)
def test_batches_keep_order_and_fit_their_frames(sizes: list[int], picture: Picture | None) -> None:
    messages = [
        Message("tool", "x" * size, tool_call_id=str(n), picture=picture) for n, size in enumerate(sizes)
    ]

    groups = batches(messages)

    assert [message for group in groups for message in group] == messages
    for group in groups:
        body = SessionAppend("turn_0123456789abcdef", tuple(group))
        assert 1 <= len(group) <= 64
        assert decode_frame(encode_frame(Kind.REQUEST, 1, to_wire(body))).id == 1


def test_the_largest_round_can_be_kept() -> None:
    made = draft("ü" * (MAX_MESSAGE_BYTES // 2 - 200), *[str(n) for n in range(64)])
    for call in made.calls:
        made.add_result(call, "r" * 200_000)

    for group in batches(made.whole()):
        encode_frame(Kind.REQUEST, 1, to_wire(SessionAppend("turn_0123456789abcdef", tuple(group))))
