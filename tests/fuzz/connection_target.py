"""The conversation: a Connection of each side against a peer that may say anything at any time."""

from typing import Any

import msgpack

from jail.wire.connection import (
    MAX_OPEN,
    STREAM_WINDOW,
    Asked,
    CancelCame,
    Connection,
    CreditCame,
    Failed,
    ItemCame,
    Replied,
    Side,
)
from jail.wire.errors import PeerFault
from jail.wire.frames import Kind, decode_frame
from jail.wire.schema import (
    FROM_JAIL,
    RESERVED_FROM_JAIL,
    RESERVED_TO_JAIL,
    TO_JAIL,
    Agent,
    Drain,
    Failure,
    Hello,
    Message,
    Ping,
    ProviderChat,
    SessionLoad,
    StepEnd,
    TurnStart,
    Welcome,
    from_wire,
)
from tests.fuzz.bodies import TURNS, mutated, plain, valid
from tests.fuzz.choices import Choices
from tests.fuzz.memory import UNDERSTOOD, within
from tests.fuzz.wire_targets import refused_quietly

_MAX_CREDIT = 4 * STREAM_WINDOW
_ASKS: dict[Side, tuple[Any, ...]] = {
    "core": (TurnStart(TURNS[0], Agent("a", "", "p", "m")), Drain(), Ping()),
    "worker": (
        ProviderChat(TURNS[0], (Message("user", "x"),)),
        SessionLoad(TURNS[0]),
        StepEnd(TURNS[0], 1, True),
    ),
}


class Talk:
    """One side under test, and what its peer could rightly say next."""

    def __init__(self, side: Side) -> None:
        self.end = Connection(side, 0.0, 30.0)
        self.side: Side = side
        self.served = FROM_JAIL if side == "core" else TO_JAIL
        self.reserved = sorted(RESERVED_FROM_JAIL if side == "core" else RESERVED_TO_JAIL)
        self.asked: dict[int, str] = {}  # ours, by id
        self.last = 0  # the peer's latest id
        self.closed: set[int] = set()

    def payload(self, choices: Choices) -> bytes:
        """What the peer sends next: often right, sometimes nearly, sometimes not."""
        kind, number, body = self._frame(choices)
        if choices.chance(40):
            body = mutated(choices, body)
        if choices.chance(16):
            number = choices.one((0, -1, 1, self.last, self.last + 2, 2**53, 2**53 + 1, "1", None))
        packed: bytes = msgpack.packb([1, int(kind), number, body])
        if choices.chance(8):
            at = choices.below(len(packed))
            packed = packed[:at] + choices.some() + packed[at:]
        return packed

    def _frame(self, choices: Choices) -> tuple[Kind, Any, Any]:
        if not self.end.ready and not choices.chance(16):
            first = Hello("fuzz") if self.side == "core" else Welcome(1 << 20)
            return (Kind.HELLO if self.side == "core" else Kind.WELCOME), 0, plain(first)
        kind = choices.one((Kind.REQUEST, *tuple(Kind)[2:], Kind.REQUEST, Kind.REQUEST, *Kind))
        ours = choices.one(self.end.open_asks) if self.end.open_asks else 1
        theirs = 1 + choices.below(min(self.last, 65_535)) if self.last > 0 else 1
        verb = (TO_JAIL if self.side == "core" else FROM_JAIL).get(self.asked.get(ours, ""))
        match kind:
            case Kind.REQUEST:
                if choices.chance(16):
                    return kind, self.last + 1, {"verb": choices.one(self.reserved), "any": [1]}
                return kind, self.last + 1, valid(choices, choices.one(list(self.served.values())).request)
            case Kind.ITEM if verb and verb.item:
                return kind, ours, valid(choices, verb.item)
            case Kind.REPLY if verb:
                return kind, ours, valid(choices, verb.reply)
            case Kind.ERROR:
                return kind, ours, valid(choices, Failure)
            case Kind.CREDIT:
                return kind, theirs, choices.one((1, 4, 16, _MAX_CREDIT, _MAX_CREDIT + 1, 0))
            case Kind.CANCEL:
                return kind, theirs, None
        return kind, 0, None

    def hear(self, payload: bytes) -> bool:
        """Give it one frame; False once the peer is at fault."""
        try:
            events = within(UNDERSTOOD, len(payload), lambda: self.end.receive(payload))
        except PeerFault as fault:
            refused_quietly(fault)
            return False
        assert len(events) <= 1
        for event in events:
            self._on_event(event)
        answers = self.end.take_answers()
        assert len(answers) <= 1
        for answer in answers:
            decode_frame(answer)
        return True

    def _on_event(self, event: object) -> None:
        match event:
            case Asked(number, verb, _):
                assert number > self.last
                assert verb in self.served
            case ItemCame(number) | Replied(number) | Failed(number):
                assert number in self.asked
                assert number not in self.closed
                if not isinstance(event, ItemCame):
                    self.closed.add(number)
            case CreditCame(number, count):
                assert 1 <= count <= self.end.credit(number)
            case CancelCame(number):
                assert number in self.end.open_answers
        self.last = self.end._last_theirs

    def act(self, choices: Choices) -> None:
        """Something our side does by right."""
        end = self.end
        if not end.ready:
            return
        asks, answers = end.open_asks, end.open_answers
        match choices.below(7):
            case 0 if len(asks) < 8:
                body = choices.one(_ASKS[self.side])
                number, _ = end.request(body, choices.one((None, 5.0)))
                self.asked[number] = str(body.__struct_config__.tag)
            case 1 if asks:
                end.cancel(choices.one(asks))
            case 2 if asks:
                number = choices.one(asks)
                room = STREAM_WINDOW - end._ours[number].granted
                if end._ours[number].verb.item is not None and room:
                    end.grant(number, room)
            case 3 if answers:
                number = choices.one(answers)
                verb = end._theirs[number].verb
                if verb.item is not None and end.credit(number):
                    decode_frame(end.item(number, valid_body(choices, verb.item)))
            case 4 if answers:
                number = choices.one(answers)
                decode_frame(end.reply(number, valid_body(choices, end._theirs[number].verb.reply)))
            case 5 if answers:
                decode_frame(end.error(choices.one(answers), "internal", "no"))
            case 6:
                for number in end.expired(choices.one((1.0, 6.0))):
                    assert number in asks

    def check(self) -> None:
        """What holds after every step, whatever was said."""
        end = self.end
        assert len(end.open_answers) <= MAX_OPEN
        for theirs in end._theirs.values():
            assert 0 <= theirs.credit <= _MAX_CREDIT
        for ours in end._ours.values():
            assert 0 <= ours.granted <= STREAM_WINDOW
        assert not end._refused
        assert not self.closed & set(end.open_asks)


def valid_body(choices: Choices, kind: Any) -> Any:
    """A struct of ours of that kind."""
    return from_wire(valid(choices, kind), kind)


def connection(data: bytes) -> int:
    """One side's Connection through a row of frames and of its own acts, to the peer's first fault."""
    choices = Choices(data)
    talk, tried = Talk(choices.one(("core", "worker"))), 0
    while choices.left and tried < 400:
        if choices.chance(64):
            talk.act(choices)
        else:
            tried += 1
            if not talk.hear(talk.payload(choices)):
                break
        talk.check()
    return tried
