"""Items go within credit and in order; what waits merges, and says when there is enough of it."""

from hypothesis import given
from hypothesis import strategies as st

from core.egress.outbox import MAX_PENDING_CHARACTERS, MAX_PIECE_CHARACTERS, Item, Outbox
from jail.wire.connection import STREAM_WINDOW
from jail.wire.schema import ChatCall, ChatDelta, ToolCall


def _state(outbox: Outbox) -> tuple[bool, bool]:
    return outbox.empty, outbox.full


def _call(number: int) -> ChatCall:
    return ChatCall(ToolCall(f"c{number}", "t", "{}"))


def test_the_first_window_is_free_and_then_deltas_merge() -> None:
    outbox = Outbox()
    for number in range(STREAM_WINDOW):
        assert outbox.text(f"{number} ") == [ChatDelta(text=f"{number} ")]
    assert outbox.text("a") == []
    assert outbox.text("b") == []
    assert _state(outbox) == (False, False)
    assert outbox.grant(5) == [ChatDelta(text="ab")]
    assert _state(outbox) == (True, False)
    assert outbox.text("c") == [ChatDelta(text="c")]


def test_text_reasoning_and_calls_keep_their_order() -> None:
    outbox = Outbox(0)
    outbox.reasoning("r")
    outbox.reasoning("s")
    outbox.text("t")
    outbox.reasoning("u")
    outbox.text("v")
    outbox.call(_call(1))
    outbox.text("w")
    assert outbox.grant(2) == [ChatDelta(reasoning="rs"), ChatDelta(text="t")]
    assert outbox.grant(9) == [
        ChatDelta(reasoning="u"),
        ChatDelta(text="v"),
        _call(1),
        ChatDelta(text="w"),
    ]


def test_a_closed_way_holds_items_back_though_there_is_credit() -> None:
    outbox = Outbox()
    assert outbox.set_open(False) == []
    assert outbox.text("a") == []
    assert outbox.text("b") == []
    assert outbox.set_open(True) == [ChatDelta(text="ab")]


def test_a_long_text_is_split_into_pieces_the_wire_takes() -> None:
    items = Outbox().text("x" * (2 * MAX_PIECE_CHARACTERS + 1))
    assert [len(i.text) for i in items if isinstance(i, ChatDelta)] == [
        MAX_PIECE_CHARACTERS,
        MAX_PIECE_CHARACTERS,
        1,
    ]


def test_it_is_full_past_its_bound_until_credit_comes() -> None:
    outbox = Outbox(0)
    outbox.text("x" * MAX_PENDING_CHARACTERS)
    assert _state(outbox) == (False, False)
    outbox.text("x")
    assert _state(outbox) == (False, True)
    outbox.grant(1)
    assert _state(outbox) == (False, False)


_Act = tuple[str, int]
_ACTS = st.lists(
    st.tuples(st.sampled_from(["text", "reasoning", "call", "grant", "open", "shut"]), st.integers(1, 5))
)


@given(_ACTS)
def test_nothing_is_lost_doubled_or_sent_past_the_credit(acts: list[_Act]) -> None:
    outbox, granted = Outbox(3), 3
    put: list[tuple[str, str]] = []
    got: list[Item] = []
    for number, (act, count) in enumerate(acts):
        if act == "grant":
            granted += count
            got += outbox.grant(count)
        elif act in ("open", "shut"):
            got += outbox.set_open(act == "open")
        elif act == "call":
            put.append(("call", f"c{number}"))
            got += outbox.call(_call(number))
        else:
            put.append((act, f"{number};" * count))
            got += outbox.text(put[-1][1]) if act == "text" else outbox.reasoning(put[-1][1])
        assert len(got) <= granted
    got += outbox.set_open(True)
    got += outbox.grant(1_000)
    assert outbox.empty
    assert _flat(got) == _flat_put(put)


def _flat(items: list[Item]) -> list[tuple[str, str]]:
    flat = []
    for item in items:
        if isinstance(item, ChatCall):
            flat.append(("call", item.call.id))
        else:
            flat.append(("text", item.text) if item.text else ("reasoning", item.reasoning))
    return _flat_put(flat)


def _flat_put(put: list[tuple[str, str]]) -> list[tuple[str, str]]:
    merged: list[tuple[str, str]] = []
    for kind, text in put:
        if merged and kind != "call" and merged[-1][0] == kind:
            merged[-1] = (kind, merged[-1][1] + text)
        else:
            merged.append((kind, text))
    return merged
