"""Every rule of the conversation, on both sides, without a socket."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jail.wire.connection import (
    MAX_OPEN,
    STREAM_WINDOW,
    Asked,
    CancelCame,
    Connection,
    CreditCame,
    Failed,
    ItemCame,
    PeerReady,
    Replied,
)
from jail.wire.errors import LocalFault, PeerFault
from jail.wire.frames import Kind, decode_frame, encode_frame
from jail.wire.schema import (
    Agent,
    ChatDelta,
    ChatEnd,
    Delta,
    Done,
    Failure,
    Message,
    Ping,
    ProviderChat,
    SessionAppend,
    StepEnd,
    TurnEnd,
    TurnStart,
    to_wire,
)

_TURN = "turn_0123456789abcdef"
_CHAT = ProviderChat(_TURN, (Message("user", "Hello"),))
_START = TurnStart(_TURN, Agent("a", "p", "p", "m"))


def pair() -> tuple[Connection, Connection]:
    """Core's end and the worker's, after the handshake."""
    core, worker = Connection("core", 0, 10), Connection("worker", 0, 10)
    assert core.receive(worker.hello("w/1")) == [PeerReady("w/1")]
    (welcome,) = core.take_answers()
    assert worker.receive(welcome) == [PeerReady("")]
    return core, worker


def asked(core: Connection, worker: Connection) -> int:
    """A provider.chat of the worker's, open on both sides."""
    request_id, frame = worker.request(_CHAT)
    assert core.receive(frame) == [Asked(request_id, "provider.chat", _CHAT)]
    return request_id


def refused(act: Callable[[], Any]) -> str:
    """The reason of the peer's fault that ``act`` raises."""
    with pytest.raises(PeerFault) as caught:
        act()
    return caught.value.reason


def test_a_stream_opens_flows_and_closes() -> None:
    core, worker = pair()
    chat = asked(core, worker)

    assert worker.receive(core.item(chat, ChatDelta("Hi"))) == [ItemCame(chat, ChatDelta("Hi"))]
    assert worker.receive(core.reply(chat, ChatEnd("stop"))) == [Replied(chat, ChatEnd("stop"))]
    assert (core.open_answers, worker.open_asks) == ((), ())


def test_both_sides_ask_with_ids_of_their_own() -> None:
    core, worker = pair()
    chat = asked(core, worker)
    turn, frame = core.request(_START)

    assert turn == chat == 1
    assert worker.receive(frame) == [Asked(turn, "turn.start", _START)]
    assert core.receive(worker.item(turn, Delta("x"))) == [ItemCame(turn, Delta("x"))]
    assert core.receive(worker.reply(turn, TurnEnd("stop"))) == [Replied(turn, TurnEnd("stop"))]
    assert worker.open_asks == (chat,)


def test_an_error_closes_with_its_code_and_time_to_wait() -> None:
    core, worker = pair()
    chat = asked(core, worker)

    (event,) = worker.receive(core.error(chat, "upstream_rate_limit", "slow down", 9))

    assert event == Failed(chat, Failure("upstream_rate_limit", "slow down", 9))


def test_nothing_comes_before_the_handshake() -> None:
    request = encode_frame(Kind.REQUEST, 1, to_wire(_CHAT))
    assert refused(lambda: Connection("core", 0, 10).receive(request)) == "order"
    welcome = encode_frame(Kind.WELCOME, 0, {"max_frame_bytes": 1})
    assert refused(lambda: Connection("core", 0, 10).receive(welcome)) == "order"
    hello = encode_frame(Kind.HELLO, 1, {"software": "w"})
    assert refused(lambda: Connection("core", 0, 10).receive(hello)) == "order"
    named = encode_frame(Kind.HELLO, 0, {"software": "w", "user": "bob"})
    assert refused(lambda: Connection("core", 0, 10).receive(named)) == "schema"
    with pytest.raises(LocalFault):
        Connection("core", 0, 10).request(Ping())


def test_a_second_handshake_is_out_of_order() -> None:
    core, worker = pair()

    assert refused(lambda: core.receive(worker.hello("again"))) == "order"
    welcome = encode_frame(Kind.WELCOME, 0, {"max_frame_bytes": 1})
    assert refused(lambda: worker.receive(welcome)) == "order"


def test_a_silent_handshake_ends_on_its_deadline() -> None:
    core = Connection("core", 5, 10)

    assert core.next_deadline_s() == 15
    assert core.expired(14.9) == []
    assert refused(lambda: core.expired(15)) == "deadline"


def test_a_request_past_its_deadline_is_named_once() -> None:
    core, _ = pair()
    late, _frame = core.request(Ping(), deadline_s=5)
    core.request(Ping(), deadline_s=9)
    core.request(Ping())

    assert core.next_deadline_s() == 5
    assert core.expired(5) == [late]
    assert core.expired(6) == []
    assert core.next_deadline_s() == 9


@pytest.mark.parametrize("request_id", [0, 1, 2])
def test_a_replayed_or_backward_id_is_refused(request_id: int) -> None:
    core, worker = pair()
    asked(core, worker)
    core.receive(encode_frame(Kind.REQUEST, 2, to_wire(_CHAT)))
    core.reply(2, ChatEnd("stop"))

    again = encode_frame(Kind.REQUEST, request_id, to_wire(_CHAT))

    assert refused(lambda: core.receive(again)) == "replay"


def test_ids_may_skip() -> None:
    core, _ = pair()
    frame = encode_frame(Kind.REQUEST, 1_000, to_wire(StepEnd(_TURN, 1, True)))

    assert core.receive(frame) == [Asked(1_000, "step.end", StepEnd(_TURN, 1, True))]


def test_too_many_open_requests_are_a_flood() -> None:
    core, worker = pair()
    for _ in range(MAX_OPEN):
        asked(core, worker)
    _, frame = worker.request(_CHAT)

    assert refused(lambda: core.receive(frame)) == "flood"


def test_an_unknown_verb_is_a_fault_and_a_reserved_one_unavailable() -> None:
    core, worker = pair()
    for verb in ("no.such.verb", "turn.start", "", None, 7, ["log"]):
        fresh, _ = pair()
        bad = encode_frame(Kind.REQUEST, 1, {"verb": verb, "turn": _TURN})
        assert refused(lambda f=fresh, b=bad: f.receive(b)) == "schema"  # type: ignore[misc]
    assert refused(lambda: pair()[0].receive(encode_frame(Kind.REQUEST, 1, None))) == "schema"

    reserved = encode_frame(Kind.REQUEST, 1, {"verb": "doc.share", "anything": [1, {"x": 2}]})
    assert core.receive(reserved) == []
    (answer,) = core.take_answers()
    frame = decode_frame(answer)
    assert (frame.kind, frame.id, frame.body["code"]) == (Kind.ERROR, 1, "unavailable")
    assert core.open_answers == ()
    assert worker.open_asks == ()


def test_no_more_items_than_credit() -> None:
    core, worker = pair()
    chat = asked(core, worker)
    frames = [core.item(chat, ChatDelta("x")) for _ in range(STREAM_WINDOW)]
    assert core.credit(chat) == 0
    with pytest.raises(LocalFault):
        core.item(chat, ChatDelta("x"))
    for frame in frames:
        worker.receive(frame)

    assert refused(lambda: worker.receive(frames[-1])) == "credit"


def test_credit_lets_exactly_that_many_more_come() -> None:
    core, worker = pair()
    chat = asked(core, worker)
    for _ in range(STREAM_WINDOW):
        worker.receive(core.item(chat, ChatDelta("x")))

    assert core.receive(worker.grant(chat, 2)) == [CreditCame(chat, 2)]
    assert core.credit(chat) == 2
    worker.receive(core.item(chat, ChatDelta("x")))
    last = core.item(chat, ChatDelta("x"))
    worker.receive(last)
    assert refused(lambda: worker.receive(last)) == "credit"


@pytest.mark.parametrize("count", [0, -1, 65, True, 1.0, "1", None, 2**40])
def test_credit_that_is_no_small_number_is_refused(count: Any) -> None:
    core, worker = pair()
    chat = asked(core, worker)

    assert refused(lambda: core.receive(encode_frame(Kind.CREDIT, chat, count))) == "schema"


def test_credit_may_not_pile_up_nor_go_where_nothing_streams() -> None:
    core, worker = pair()
    chat = asked(core, worker)
    pile = encode_frame(Kind.CREDIT, chat, 48)
    core.receive(pile)
    assert refused(lambda: core.receive(pile)) == "credit"

    step, frame = worker.request(StepEnd(_TURN, 1, True))
    core.receive(frame)
    assert refused(lambda: core.receive(encode_frame(Kind.CREDIT, step, 1))) == "credit"


def test_an_item_where_nothing_streams_is_refused() -> None:
    core, worker = pair()
    step, frame = worker.request(StepEnd(_TURN, 1, True))
    core.receive(frame)
    with pytest.raises(LocalFault):
        core.item(step, Delta("x"))

    item = encode_frame(Kind.ITEM, step, to_wire(ChatDelta("x")))
    assert refused(lambda: worker.receive(item)) == "credit"


def test_answers_to_what_was_never_asked_or_is_closed_are_out_of_order() -> None:
    core, worker = pair()
    for kind in (Kind.ITEM, Kind.REPLY, Kind.ERROR):
        fresh, _ = pair()
        never = encode_frame(kind, 7, {})
        assert refused(lambda f=fresh, n=never: f.receive(n)) == "order"  # type: ignore[misc]
    chat = asked(core, worker)
    reply = core.reply(chat, ChatEnd("stop"))
    worker.receive(reply)
    assert refused(lambda: worker.receive(reply)) == "order"
    for kind in (Kind.CREDIT, Kind.CANCEL):
        fresh, _ = pair()
        never = encode_frame(kind, 7, 1 if kind is Kind.CREDIT else None)
        assert refused(lambda f=fresh, n=never: f.receive(n)) == "order"  # type: ignore[misc]


def test_a_reply_of_another_verb_is_refused() -> None:
    core, worker = pair()
    chat = asked(core, worker)

    assert refused(lambda: worker.receive(core.reply(chat, Done()))) == "schema"


def test_credit_and_cancel_that_crossed_the_closing_frame_are_no_fault() -> None:
    core, worker = pair()
    chat = asked(core, worker)
    credit, cancel = worker.grant(chat, 1), worker.cancel(chat)
    closing = core.error(chat, "upstream", "gone")

    assert core.receive(credit) == []
    assert core.receive(cancel) == []
    assert worker.receive(closing) == [Failed(chat, Failure("upstream", "gone"))]


def test_cancel_is_told_once_and_later_items_are_not_delivered() -> None:
    core, worker = pair()
    chat = asked(core, worker)
    on_its_way = core.item(chat, ChatDelta("late"))
    cancel = worker.cancel(chat)

    assert core.receive(cancel) == [CancelCame(chat)]
    assert core.receive(cancel) == []
    assert worker.receive(on_its_way) == []
    assert worker.receive(core.error(chat, "cancelled", "as asked")) == [
        Failed(chat, Failure("cancelled", "as asked"))
    ]
    with pytest.raises(LocalFault):
        worker.cancel(chat)


def test_a_cancel_has_no_body() -> None:
    core, worker = pair()
    chat = asked(core, worker)

    assert refused(lambda: core.receive(encode_frame(Kind.CANCEL, chat, 1))) == "schema"


def test_our_own_mistakes_are_ours() -> None:
    core, worker = pair()
    acts: list[Callable[[], Any]] = [
        lambda: core.hello("x"),
        lambda: core.reply(1, Done()),
        lambda: core.error(1, "internal", "x"),
        lambda: core.item(1, Delta("x")),
        lambda: worker.grant(1, 1),
        lambda: worker.cancel(1),
    ]
    for act in acts:
        with pytest.raises(LocalFault):
            act()


def test_a_frame_we_could_not_send_leaves_the_request_open() -> None:
    core, worker = pair()
    chat = asked(core, worker)
    with pytest.raises(LocalFault):
        core.item(chat, ChatDelta("\ud800"))

    assert core.credit(chat) == STREAM_WINDOW
    assert core.open_answers == (chat,)


def test_a_message_past_the_frame_is_ours_to_cut() -> None:
    _, worker = pair()
    long = Message("user", "ü" * 600_000)
    with pytest.raises(LocalFault):
        worker.request(SessionAppend(_TURN, (long,)))

    assert worker.open_asks == ()


frames = st.builds(
    encode_frame,
    st.sampled_from(Kind),
    st.integers(0, 4),
    st.none()
    | st.integers(-2, 70)
    | st.sampled_from(
        [
            to_wire(body)
            for body in (
                _CHAT,
                StepEnd(_TURN, 1, True),
                ChatDelta("x"),
                ChatEnd("stop"),
                Done(),
                Failure("limit", "x"),
                Ping(),
                _START,
                Delta("x"),
                TurnEnd("stop"),
            )
        ]
    ),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(frames, max_size=12), st.booleans())
def test_any_sequence_of_frames_is_events_or_a_fault(sequence: list[bytes], as_core: bool) -> None:
    core, worker = pair()
    asked(core, worker)
    turn, frame = core.request(_START)
    worker.receive(frame)
    end = core if as_core else worker
    try:
        for data in sequence:
            end.receive(data)
            end.take_answers()
            assert len(end.open_answers) <= MAX_OPEN
            assert 0 <= end.credit(turn) <= 4 * STREAM_WINDOW
    except PeerFault:
        pass


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_events_or_a_fault(data: bytes) -> None:
    for end in (*pair(), Connection("core", 0, 10), Connection("worker", 0, 10)):
        try:
            end.receive(data)
        except PeerFault:
            pass
