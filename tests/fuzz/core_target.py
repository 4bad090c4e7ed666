"""The whole core end: a UserState whose jail says what it likes, while the rest of core does its part."""

import itertools
from typing import Any

from actors.instructions import (
    Append,
    Cancel,
    Credit,
    Finish,
    Gone,
    Instruction,
    KeepApproval,
    Kill,
    Launch,
    Lost,
    Say,
    Send,
    Serve,
    SettleApproval,
    TellAnswered,
    Used,
)
from actors.service import Mode, TurnSpec
from actors.user_state import UserState
from jail.wire.connection import MAX_OPEN
from jail.wire.errors import PeerFault
from jail.wire.frames import decode_frame
from jail.wire.schema import FROM_JAIL, Agent, Failure, Limits
from tests.fakes.handle import FakeHandle
from tests.fakes.sink import FakeSink
from tests.fuzz.bodies import TURNS
from tests.fuzz.choices import Choices
from tests.fuzz.connection_target import Talk, valid_body
from tests.fuzz.memory import UNDERSTOOD, within

_MODES: dict[str, Mode] = {"session.append": "ask", "step.end": "off"}
_LIMITS = (Limits(), Limits(rounds=2, output_tokens=10, wall_s=1))
_STEPS_S = (0.0, 0.5, 3.0, 40.0)
_MAX_TURNS = 12
# Instructions for one frame: those that close everything a jail had open, at most.
_MOST_INSTRUCTIONS = 4 * (MAX_OPEN + _MAX_TURNS)


class House:
    """A UserState, everything around it, and what has to hold of what it says."""

    def __init__(self, choices: Choices) -> None:
        lives = itertools.count(1)
        modes = choices.one((_MODES, {}))
        self.choices = choices
        self.state = UserState(lambda: next(lives), lambda verb: modes.get(verb, "on"), 30.0)
        self.now_s = 0.0
        self.sinks: dict[str, FakeSink] = {}
        self.served: dict[int, str] = {}  # of this life: what services still work at
        self.seen: set[int] = set()
        self.credit: dict[int, int] = {}  # items a service may send
        self.unaccepted: dict[str, int] = {}
        self.talk: Talk | None = None  # what the jail's peer knows
        self.alive = 0  # the life that was launched and not ended
        self.busy: dict[int, bool] = {}  # as it was last told, by life
        self.gone = False
        self.frames = 0
        self.keeping: list[str] = []  # questions that the book writes down
        self.settling: list[str] = []  # and those whose decision it does
        self.decided: set[str] = set()
        self.questions: list[str] = []

    # -- stimuli ------------------------------------------------------------------------------------

    def step(self) -> None:
        """One thing happens: mostly that the jail speaks."""
        choices, state = self.choices, self.state
        if not choices.chance(110):
            self._hear()
            return
        life = state.life - choices.chance(16)
        match choices.below(15):
            case 0 | 1 if len(self.sinks) < _MAX_TURNS and not self.gone:
                self._start()
            case 2:
                self._do(state.cancel_turn(choices.one((*self.sinks, TURNS[0])), self.now_s))
            case 3 | 4 | 5 if self.served:
                self._answer(life)
            case 6 if self.unaccepted:
                turn = choices.one(list(self.unaccepted))
                self._do(state.accepted(life, turn, self.unaccepted.pop(turn)))
            case 12 if self.keeping:
                name = self.keeping.pop(choices.below(len(self.keeping)))
                lost = choices.one((None, None, Failure("unavailable", "no room")))
                self._do(state.approval_kept(name, lost, self.now_s))
            case 13 if self.questions:
                name = choices.one(self.questions)
                self._do(state.answer_approval(name, choices.chance(128), _nobody, self.now_s))
            case 14 if self.settling:
                name = self.settling.pop(choices.below(len(self.settling)))
                lost = choices.one((None, None, Failure("unavailable", "no room")))
                self._do(state.approval_settled(name, lost))
            case 7:
                self.now_s += choices.one(_STEPS_S)
            case 8:
                self._do(state.tick(self.now_s))
            case 9 if choices.chance(128):
                fault = PeerFault("multipart", "messages have one part here")
                self._do(state.jail_closed(life, choices.one((None, fault)), self.now_s))
            case 10:
                self._do(state.jail_exited(life, "exit_0", self.now_s))
            case 9:
                self._do(state.evict(life, choices.chance(128), self.now_s))
            case 11 if choices.chance(16):
                self._do(choices.one((state.leave, self._failed))(self.now_s))

    def _failed(self, now_s: float) -> list[Instruction]:
        if self.state.phase == "starting":
            self.alive = 0
            self.talk = None
        return self.state.jail_failed(self.state.life, Failure("overloaded", "no room", 5), now_s)

    def _start(self) -> None:
        turn = f"turn_{len(self.sinks) + 1:x}" + TURNS[0][6:]
        sink = self.sinks[turn] = FakeSink()
        agent = Agent("a", "", "p", "m", limits=self.choices.one(_LIMITS))
        self._do(self.state.start_turn(TurnSpec(turn, FakeHandle("ann"), agent, sink, None), self.now_s))

    def _answer(self, life: int) -> None:
        choices, state = self.choices, self.state
        number = choices.one(list(self.served))
        verb = FROM_JAIL[self.served[number]]
        match choices.below(3):
            case 0 if self.credit.get(number):
                if life == state.life:
                    self.credit[number] -= 1
                self._do(state.answered_item(life, number, valid_body(choices, verb.item)))
            case 1:
                if life == state.life:
                    del self.served[number]
                self._do(state.answered(life, number, valid_body(choices, verb.reply)))
            case _:
                if life == state.life:
                    del self.served[number]
                self._do(state.answered_error(life, number, Failure("upstream", "no", 3)))

    def _hear(self) -> None:
        link = self.state._connection
        if link is None or self.talk is None:
            payloads = [self.choices.some()]  # a jail that is killed may still have been heard
        else:
            self.talk.end, self.talk.last = link, link._last_theirs
            self.talk.asked = {number: str(_tag(ours)) for number, ours in link._ours.items()}
            payloads = [self._payload() for _ in range(1 + self.choices.below(3))]
        self.frames += len(payloads)
        life, state, now_s = self.state.life, self.state, self.now_s
        out = within(UNDERSTOOD, sum(map(len, payloads)), lambda: state.frames(life, payloads, now_s))
        assert len(out) <= _MOST_INSTRUCTIONS * len(payloads)
        self._do(out)

    def _payload(self) -> bytes:
        assert self.talk is not None
        payload = self.talk.payload(self.choices)
        running = [turn for turn, sink in self.sinks.items() if not sink.outcomes]
        if running and not self.choices.chance(40):  # speak of a turn that runs
            for turn in TURNS:
                payload = payload.replace(turn.encode(), self.choices.one(running).encode())
        return payload

    # -- instructions -------------------------------------------------------------------------------

    def _do(self, out: list[Instruction]) -> None:
        assert not self.gone or all(isinstance(each, Finish | Gone | TellAnswered) for each in out)
        for instruction in out:
            self._carry_out(instruction)
        self._check()

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case Launch(life):
                assert not self.alive, "a second jail beside the first"
                self.alive = life
                self._new_life()
                self.talk = Talk("core")
            case Kill(life):
                assert life == self.alive
                self.alive = 0
                self._new_life()
            case Used(life, busy):
                assert life == self.alive
                assert busy is not self.busy.get(life), "told twice"
                self.busy[life] = busy
            case Send(data):
                assert self.alive
                decode_frame(data)
            case Serve(spec, life, number, verb):
                assert life == self.alive
                assert not self.sinks[spec.turn].outcomes, "served for a turn that is over"
                assert number not in self.seen, "served twice"
                self.seen.add(number)
                self.served[number] = verb
                self.credit[number] = 16 if FROM_JAIL[verb].item is not None else 0
            case Credit(_, number, verb, count):
                assert self.served.get(number) == verb
                self.credit[number] += count
            case Cancel(_, number, verb):
                assert self.served.pop(number) == verb
            case Append(sink, life, turn, _):
                assert life == self.alive
                assert not self.sinks[turn].outcomes, "an event after the turn's end"
                assert sink is self.sinks[turn]
                self.unaccepted[turn] = self.unaccepted.get(turn, 0) + 1
            case KeepApproval(question):
                self.keeping.append(question.id)
                self.questions.append(question.id)
            case SettleApproval(question, _):
                assert question.id not in self.decided, "decided twice"
                self.decided.add(question.id)
                self.settling.append(question.id)
            case Say(sink, _):
                assert isinstance(sink, FakeSink)
                assert not sink.outcomes, "an event after the turn's end"
            case TellAnswered():
                pass
            case Finish(sink, outcome):
                sink.finish(outcome)
            case Lost(sink, failure, again):
                sink.lost(failure, again)
            case Gone():
                self.gone = True

    def _new_life(self) -> None:
        self.served.clear()
        self.credit.clear()
        self.seen.clear()
        self.unaccepted.clear()

    # -- what holds ---------------------------------------------------------------------------------

    def _check(self) -> None:
        state, link = self.state, self.state._connection
        for turn, sink in self.sinks.items():
            assert len(sink.outcomes) + (turn in state._turns) == 1, "a turn has to end once"
        assert (link is not None) == (state.phase in ("starting", "ready", "draining"))
        asking = {number for number, open_ in state._open.items() if open_.question is not None}
        assert set(state._open) == set(self.served) | asking
        assert not asking & set(self.served), "served before it was allowed"
        assert all(open_.turn.spec.turn in state._turns for open_ in state._open.values())
        if link is None:
            assert not state._open
            assert not state._by_request
            return
        assert set(link.open_answers) == set(state._open), "a request is neither served nor answered"
        assert self.talk is not None
        self.talk.end = link
        self.talk.check()
        for number, credit in self.credit.items():
            assert number not in self.served or credit == link.credit(number)

    def close(self) -> None:
        """Leave, and let every deadline pass: nothing may be left over."""
        self._do(self.state.leave(self.now_s))
        for _ in range(12 + len(self.questions)):
            if self.state.phase == "cold":
                break
            due = self.state.next_deadline_s()
            assert due is not None, f"nothing ends {self.state.phase}"
            self.now_s = max(self.now_s, due)
            self._do(self.state.tick(self.now_s))
        assert self.gone
        assert all(len(sink.outcomes) == 1 for sink in self.sinks.values())


def _nobody(*_: object) -> None:
    """Who answered does not wait for what came of it."""


def _tag(ours: Any) -> Any:
    return ours.verb.request.__struct_config__.tag


def core(data: bytes) -> int:
    """A user's state through a row of stimuli, then to its end."""
    choices = Choices(data)
    house = House(choices)
    house._start()
    steps = 0
    while choices.left and steps < 300:
        house.step()
        steps += 1
    house.close()
    return house.frames
