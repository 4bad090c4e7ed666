"""The user actor's decisions, against a worker that is a Connection of its own."""

import dataclasses
import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest

from actors.calls import CallSpec
from actors.instructions import (
    Append,
    CallEnd,
    CallItem,
    Cancel,
    Credit,
    Finish,
    Gone,
    Kill,
    Launch,
    Lost,
    Note,
    Say,
    Send,
    Serve,
    Used,
)
from actors.service import Mode, TurnSpec
from actors.user_state import UserState
from jail.wire.connection import Asked, CancelCame, Connection, Failed, Replied
from jail.wire.frames import Kind, decode_frame, encode_frame
from jail.wire.schema import (
    Agent,
    ChatDelta,
    ChatEnd,
    Delta,
    Done,
    Drain,
    Failure,
    FileChunk,
    FileInfo,
    FileRead,
    HttpBody,
    HttpData,
    HttpEnd,
    HttpFetch,
    Limits,
    LogLine,
    Message,
    ProviderChat,
    SessionAppend,
    SessionLoad,
    StepBegin,
    TurnEnd,
    Usage,
    to_wire,
)
from tests.fakes.handle import FakeHandle
from tests.fakes.sink import FakeSink

ONE = "turn_" + "1" * 16
TWO = "turn_" + "2" * 16


@dataclass
class House:
    """A UserState, the worker at the other end, and the clock between them."""

    modes: dict[str, Mode] = field(default_factory=dict)
    now_s: float = 100.0

    def __post_init__(self) -> None:
        lives = itertools.count(1)
        self.state = UserState(lambda: next(lives), lambda v: self.modes.get(v, "on"), 30.0)
        self.worker = Connection("worker", self.now_s, 30.0)
        self.seen: list[Any] = []  # events at the worker
        self.done: list[Any] = []  # instructions other than Send, Note and Used
        self.used: list[tuple[int, bool]] = []

    def do(self, instructions: list[Any]) -> list[Any]:
        """Carry out what can be: frames reach the worker, logs are written; the rest is returned."""
        rest = []
        for instruction in instructions:
            match instruction:
                case Send(data):
                    self.seen += self.worker.receive(data)
                case Append(sink, _, _, item):
                    sink.append(item, lambda: None)
                    rest.append(instruction)
                case Say(sink, said):
                    sink.append(said, lambda: None)
                case Finish(sink, outcome):
                    sink.finish(outcome)
                case Lost(sink, failure, again):
                    sink.lost(failure, again)
                case CallItem(sink, body):
                    sink.item(body)
                case CallEnd(sink, outcome):
                    sink.finish(outcome)
                case Used(life, busy):
                    self.used.append((life, busy))
                case Note():
                    pass
                case _:
                    rest.append(instruction)
        self.done += rest
        return rest

    def spec(self, turn: str = ONE, **limits: int) -> TurnSpec:
        agent = Agent("assistant", "be kind", "builtin", "assistant", (), Limits(**limits))
        return TurnSpec(turn, FakeHandle("alice"), agent, FakeSink(), None)

    def sink(self, spec: TurnSpec) -> FakeSink:
        assert isinstance(spec.sink, FakeSink)
        return spec.sink

    def start(self, spec: TurnSpec) -> list[Any]:
        return self.do(self.state.start_turn(spec, self.now_s))

    def says(self, *frames: bytes) -> list[Any]:
        return self.do(self.state.frames(self.state.life, list(frames), self.now_s))

    def warm(self, spec: TurnSpec) -> int:
        """Start a turn in a fresh jail, to the worker's having it; returns its request's id."""
        assert self.start(spec) == [Launch(self.state.life)]
        self.worker = Connection("worker", self.now_s, 30.0)
        self.says(self.worker.hello("test"))
        return next(e.id for e in self.seen if isinstance(e, Asked) and e.verb == "turn.start")

    def asks(self, body: Any) -> tuple[int, list[Any]]:
        request_id, data = self.worker.request(body)
        return request_id, self.says(data)

    def last(self) -> Any:
        return self.seen[-1]


@pytest.fixture
def house() -> House:
    return House()


def no_jail(message: str) -> Failure:
    return Failure("unavailable", message)


def chat(turn: str = ONE) -> ProviderChat:
    return ProviderChat(turn, (Message("user", "hello"),))


def test_a_first_turn_launches_one_jail_and_begins_when_the_worker_says_hello(house: House) -> None:
    spec, second = house.spec(), house.spec(TWO)
    assert house.start(spec) == [Launch(1)]
    assert house.start(second) == []
    house.says(house.worker.hello("test"))
    begun = [e.body.turn for e in house.seen if isinstance(e, Asked)]
    assert begun == [ONE, TWO]
    assert house.state.phase == "ready"


def test_items_go_to_the_log_and_the_reply_ends_the_turn(house: House) -> None:
    spec = house.spec()
    request = house.warm(spec)
    house.says(house.worker.item(request, Delta("hi")), house.worker.reply(request, TurnEnd("stop")))
    assert house.sink(spec).items == [Delta("hi")]
    assert house.sink(spec).outcome == TurnEnd("stop")


def test_credit_comes_back_only_for_events_the_log_accepted(house: House) -> None:
    spec = house.spec()
    request = house.warm(spec)
    for _ in range(16):
        house.says(house.worker.item(request, Delta("x")))
    assert house.worker.credit(request) == 0
    house.do(house.state.accepted(1, ONE, 3))
    assert house.worker.credit(request) == 0
    house.do(house.state.accepted(1, ONE, 1))
    assert house.worker.credit(request) == 4


def test_a_verb_reaches_its_service_with_what_the_connection_stands_for(house: House) -> None:
    spec = house.spec()
    house.warm(spec)
    request, rest = house.asks(chat())
    assert rest == [Serve(spec, 1, request, "provider.chat", chat())]
    house.do(house.state.answered_item(1, request, ChatDelta("a")))
    house.do(house.state.answered(1, request, ChatEnd("stop", Usage(1, 2))))
    assert house.last() == Replied(request, ChatEnd("stop", Usage(1, 2)))


def test_a_late_answer_of_a_service_is_dropped(house: House) -> None:
    house.warm(house.spec())
    request, _ = house.asks(chat())
    house.do(house.state.answered_error(1, request, Failure("upstream", "down")))
    before = len(house.seen)
    assert house.do(house.state.answered(1, request, ChatEnd("stop"))) == []
    assert house.do(house.state.answered(7, request, ChatEnd("stop"))) == []
    assert len(house.seen) == before


def test_a_verb_that_is_off_is_refused_and_not_served() -> None:
    house = House({"provider.chat": "off"})
    house.warm(house.spec())
    request, rest = house.asks(chat())
    assert rest == []
    assert isinstance(house.last(), Failed)
    assert (house.last().id, house.last().failure.code) == (request, "refused")


def test_a_turn_that_is_not_this_users_is_not_found(house: House) -> None:
    house.warm(house.spec())
    _, rest = house.asks(chat(TWO))
    assert rest == []
    assert house.last().failure.code == "not_found"


def test_rounds_tokens_and_steps_are_counted_in_core_too(house: House) -> None:
    house.warm(house.spec(rounds=2, output_tokens=10))
    for _ in range(2):
        request, rest = house.asks(chat())
        assert len(rest) == 1
        house.do(house.state.answered(1, request, ChatEnd("stop", Usage(1, 4))))
    _, rest = house.asks(chat())
    assert rest == []
    assert "2 rounds" in house.last().failure.message


def test_tokens_past_the_limit_end_the_next_call(house: House) -> None:
    house.warm(house.spec(output_tokens=10))
    request, _ = house.asks(chat())
    house.do(house.state.answered(1, request, ChatEnd("stop", Usage(1, 10))))
    _, rest = house.asks(chat())
    assert rest == []
    assert "10 tokens" in house.last().failure.message


def test_one_chat_at_a_time_in_a_turn(house: House) -> None:
    house.warm(house.spec())
    house.asks(chat())
    _, rest = house.asks(chat())
    assert rest == []
    assert house.last().failure.code == "limit"


def test_appending_and_logging_without_end_is_refused(house: House) -> None:
    house.warm(house.spec())
    big = SessionAppend(ONE, (Message("assistant", "x" * 800_000),))
    refused = 0
    for _ in range(25):
        request, rest = house.asks(big)
        if rest:
            house.do(house.state.answered(1, request, Done()))
        else:
            refused += 1
    assert 3 <= refused <= 6  # 16 MiB of 0.8 MB each
    for _ in range(51):
        house.asks(LogLine(ONE, "info", "spoke"))
    assert house.last().failure.code == "limit"


def test_cancel_stops_the_provider_by_itself_and_tells_the_worker(house: House) -> None:
    spec = house.spec()
    turn_request = house.warm(spec)
    request, _ = house.asks(chat())
    rest = house.do(house.state.cancel_turn(ONE, house.now_s))
    assert rest == [Cancel(1, request, "provider.chat")]
    assert CancelCame(turn_request) in house.seen
    assert any(isinstance(e, Failed) and e.id == request for e in house.seen)
    _, rest = house.asks(SessionAppend(ONE, (Message("assistant", "so far"),)))
    assert len(rest) == 1  # what was streamed may still be kept
    _, rest = house.asks(StepBegin(ONE, 1, "run_command", "{}"))
    assert rest == []  # but nothing new acts
    house.says(house.worker.error(turn_request, "cancelled", "stopped"))
    outcome = house.sink(spec).outcome
    assert isinstance(outcome, Failure)
    assert outcome.code == "cancelled"


def test_a_worker_that_ignores_cancel_loses_its_jail_after_two_seconds(house: House) -> None:
    spec = house.spec()
    house.warm(spec)
    house.do(house.state.cancel_turn(ONE, house.now_s))
    house.now_s += 1.9
    assert house.do(house.state.tick(house.now_s)) == []
    house.now_s += 0.2
    assert house.state.next_deadline_s() is not None
    assert house.do(house.state.tick(house.now_s)) == [Kill(1, "cancel_ignored")]
    assert house.sink(spec).outcome == Failure("cancelled", "the turn was cancelled")


def test_the_wall_clock_is_kept_in_core(house: House) -> None:
    spec = house.spec(wall_s=10)
    house.warm(spec)
    house.now_s += 15.1
    house.do(house.state.tick(house.now_s))
    house.now_s += 2.1
    assert house.do(house.state.tick(house.now_s)) == [Kill(1, "cancel_ignored")]
    assert house.sink(spec).outcome == Failure("limit", "the turn took longer than 10 s")


def test_a_fault_ends_the_jail_with_one_error_and_waiting_turns_get_the_next(house: House) -> None:
    spec = house.spec()
    house.warm(spec)
    request, _ = house.asks(chat())
    assert house.says(b"\xc1") == [Cancel(1, request, "provider.chat"), Kill(1, "fault_encoding")]
    outcome = house.sink(spec).outcome
    assert isinstance(outcome, Failure)
    assert (outcome.code, "encoding" in outcome.message) == ("worker", True)
    assert house.start(house.spec(TWO)) == []
    assert house.do(house.state.jail_exited(1, "signal 9", house.now_s)) == [Launch(2)]


MET = Failure("limit", "your jail ran out of memory: its limit is 64 MiB")


def test_a_jail_that_is_gone_is_asked_after_and_its_turn_told_the_limit_it_met(house: House) -> None:
    spec = house.spec()
    house.warm(spec)
    assert house.do(house.state.jail_gone(1, house.now_s)) == []
    # what comes meanwhile is for the next life
    assert house.start(house.spec(TWO)) == []
    ended = house.do(house.state.jail_exited(1, "signal 9", house.now_s, MET))
    assert ended == [Kill(1, "limit"), Launch(2)]
    assert house.sink(spec).outcome == MET


def test_a_jail_that_is_gone_and_of_which_nothing_is_heard_ends_its_turn_all_the_same(house: House) -> None:
    spec = house.spec()
    house.warm(spec)
    house.do(house.state.jail_gone(1, house.now_s))
    assert house.do(house.state.tick(house.now_s + 1)) == []
    assert house.do(house.state.tick(house.now_s + 2)) == [Kill(1, "ended")]
    outcome = house.sink(spec).outcome
    assert isinstance(outcome, Failure)
    assert "ended in the middle" in outcome.message


def test_a_jail_that_is_gone_without_a_turn_is_over_at_once(house: House) -> None:
    ready(house)
    assert house.do(house.state.jail_gone(1, house.now_s)) == [Kill(1, "ended")]


def test_of_a_jail_of_another_life_that_is_gone_nothing_is_waited_for(house: House) -> None:
    house.warm(house.spec())
    assert house.state.jail_gone(7, house.now_s) == []
    assert house.start(house.spec(TWO)) == []
    assert house.state.phase == "ready"


def test_nothing_of_an_old_life_touches_the_new_one(house: House) -> None:
    house.warm(house.spec())
    house.says(b"\xc1")
    house.start(house.spec(TWO))
    house.do(house.state.jail_exited(1, "signal 9", house.now_s))
    assert house.state.frames(1, [encode_frame(Kind.HELLO, 0, {"software": "old"})], house.now_s) == []
    assert house.state.jail_closed(1, None, house.now_s) == []
    assert house.state.jail_exited(1, "again", house.now_s) == []
    assert (house.state.phase, house.state.life) == ("starting", 2)


def test_a_silent_handshake_ends_on_its_deadline_and_three_in_a_row_give_up(house: House) -> None:
    spec = house.spec()
    house.start(spec)
    for life in (1, 2, 3):
        house.now_s += 30.1
        assert house.do(house.state.tick(house.now_s)) == [Kill(life, "fault_deadline")]
        assert house.sink(spec).ended.is_set() == (life == 3)
        rest = house.do(house.state.jail_exited(life, "signal 9", house.now_s))
        assert rest == ([Launch(life + 1)] if life < 3 else [])
    assert house.sink(spec).outcome.code == "unavailable"  # type: ignore[union-attr]


def test_a_jail_that_cannot_start_fails_the_turns_that_wait_for_it(house: House) -> None:
    spec = house.spec()
    house.start(spec)
    house.do(house.state.jail_failed(1, no_jail("enable user namespaces"), house.now_s))
    assert "enable user" in house.sink(spec).outcome.message  # type: ignore[union-attr]
    assert house.state.phase == "cold"


def test_what_runs_in_a_jail_is_told_as_it_changes(house: House) -> None:
    request = house.warm(house.spec())
    assert house.used == [(1, True)]
    house.says(house.worker.reply(request, TurnEnd("stop")))
    assert house.used == [(1, True), (1, False)]
    house.start(house.spec(TWO))
    house.do(house.state.cancel_turn(TWO, house.now_s))
    assert house.used[2:] == [(1, True)]  # the worker has not closed it yet
    house.says(house.worker.error(house.last().id, "cancelled", "stopped"))
    assert house.used[2:] == [(1, True), (1, False)]


def test_only_an_idle_jail_is_evicted_unless_it_is_to_go_when_it_is_idle(house: House) -> None:
    request = house.warm(house.spec())
    assert house.do(house.state.evict(1, False, house.now_s)) == []
    assert house.last().verb == "turn.start"
    house.do(house.state.evict(2, True, house.now_s))  # another life's
    second = house.spec(TWO)
    house.do(house.state.evict(1, True, house.now_s))
    house.start(second)
    assert house.last().verb == "turn.start", "nothing new begins in a jail that is to go"
    house.says(house.worker.reply(request, TurnEnd("stop")))
    assert house.last().verb == "drain"
    house.do(house.state.jail_closed(1, None, house.now_s))
    assert house.do(house.state.jail_exited(1, "exit 0", house.now_s)) == [Launch(2)]
    house.worker = Connection("worker", house.now_s, 30.0)
    house.says(house.worker.hello("test"))
    assert house.last().verb == "turn.start", "and begins in the next one"


def test_an_idle_jail_is_drained_and_a_turn_meanwhile_waits_for_the_next_life(house: House) -> None:
    spec = house.spec()
    request = house.warm(spec)
    house.says(house.worker.reply(request, TurnEnd("stop")))
    house.do(house.state.evict(1, False, house.now_s))
    assert house.last() == Asked(house.last().id, "drain", Drain())
    assert house.start(house.spec(TWO)) == []
    house.says(house.worker.reply(house.last().id, Done()))
    assert house.do(house.state.jail_closed(1, None, house.now_s)) == [Kill(1, "drained")]
    assert house.do(house.state.jail_exited(1, "exit 0", house.now_s)) == [Launch(2)]


def test_a_jail_that_ignores_drain_is_killed(house: House) -> None:
    request = house.warm(house.spec())
    house.says(house.worker.reply(request, TurnEnd("stop")))
    house.do(house.state.evict(1, False, house.now_s))
    house.now_s += 10.1
    assert house.do(house.state.tick(house.now_s)) == [Kill(1, "drain_ignored")]


def test_leaving_lets_running_turns_end_then_drains_then_says_gone(house: House) -> None:
    spec = house.spec()
    request = house.warm(spec)
    assert house.do(house.state.leave(house.now_s)) == []
    refused = house.spec(TWO)
    house.start(refused)
    assert house.sink(refused).outcome.code == "unavailable"  # type: ignore[union-attr]
    house.says(house.worker.reply(request, TurnEnd("stop")))
    assert house.sink(spec).outcome == TurnEnd("stop")
    assert house.state.phase == "draining"
    house.do(house.state.jail_closed(1, None, house.now_s))
    assert house.do(house.state.jail_exited(1, "exit 0", house.now_s)) == [Gone()]


def test_leaving_while_cold_is_gone_at_once(house: House) -> None:
    assert house.do(house.state.leave(house.now_s)) == [Gone()]


def test_the_workers_credit_and_cancel_reach_the_service(house: House) -> None:
    house.warm(house.spec())
    request, _ = house.asks(chat())
    assert house.says(house.worker.grant(request, 5)) == [Credit(1, request, "provider.chat", 5)]
    assert house.says(house.worker.cancel(request)) == [Cancel(1, request, "provider.chat")]
    assert house.last().failure.code == "cancelled"
    assert house.done[-1] == Cancel(1, request, "provider.chat")


def test_an_unserved_verb_is_unavailable_and_an_unknown_one_a_fault(house: House) -> None:
    house.warm(house.spec())
    frame = encode_frame(Kind.REQUEST, 1, {"verb": "doc.share", "path": "x"})
    (answer,) = house.state.frames(1, [frame], house.now_s)
    assert isinstance(answer, Send)
    assert decode_frame(answer.data).body["code"] == "unavailable"
    assert house.says(encode_frame(Kind.REQUEST, 2, {"verb": "keys.read"})) == [Kill(1, "fault_schema")]


def fetching(turn: str = ONE, name: str = "0" * 16) -> HttpFetch:
    return HttpFetch(turn, name, "GET", "https://api.example.com/")


def test_a_cancelled_turn_ends_what_it_asks_outside_at_once_and_begins_nothing_more(house: House) -> None:
    house.warm(house.spec())
    fetch, rest = house.asks(fetching())
    assert [type(one) for one in rest] == [Serve]
    part, rest = house.asks(HttpBody(ONE, "0" * 16, b"x", False))
    assert [type(one) for one in rest] == [Serve]
    house.do(house.state.answered_item(1, fetch, HttpData(b"a")))
    ended = house.do(house.state.cancel_turn(ONE, house.now_s))
    assert ended == [Cancel(1, fetch, "http.fetch"), Cancel(1, part, "http.body")]
    late, rest = house.asks(fetching(name="1" * 16))
    assert rest == []
    assert house.last() == Failed(late, Failure("cancelled", "the turn was cancelled"))


def test_the_end_of_a_turn_ends_what_it_left_open_outside(house: House) -> None:
    turn = house.warm(house.spec())
    fetch, _ = house.asks(fetching())
    ended = house.says(house.worker.reply(turn, TurnEnd("stop")))
    assert Cancel(1, fetch, "http.fetch") in ended
    after, rest = house.asks(fetching(name="1" * 16))
    assert rest == []
    assert house.last() == Failed(after, Failure("not_found", "no such turn runs"))


def test_a_turn_has_four_fetches_at_once_and_no_more(house: House) -> None:
    house.warm(house.spec())
    opened = [house.asks(fetching(name=f"{n:016x}"))[0] for n in range(4)]
    fifth, rest = house.asks(fetching(name="f" * 16))
    assert rest == []
    assert isinstance(house.last(), Failed)
    house.do(house.state.answered(1, opened[0], HttpEnd(0)))
    _, rest = house.asks(fetching(name="e" * 16))
    assert [type(one) for one in rest] == [Serve]
    assert fifth not in opened


def test_a_turn_loads_its_session_once_at_a_time(house: House) -> None:
    spec = house.spec()
    house.warm(spec)
    first, _ = house.asks(SessionLoad(spec.turn))
    second, rest = house.asks(SessionLoad(spec.turn))
    assert rest == []
    assert house.last() == Failed(second, Failure("limit", "one session.load at a time in a turn"))
    house.do(house.state.answered(1, first, Done()))
    _, rest = house.asks(SessionLoad(spec.turn))
    assert [type(one) for one in rest] == [Serve]


@pytest.mark.parametrize("extra", [{"user": "bob"}, {"session": "s"}, {"skill": "x"}])
def test_a_frame_that_names_a_user_a_session_or_a_skill_is_a_fault(
    house: House, extra: dict[str, str]
) -> None:
    house.warm(house.spec())
    body = {**to_wire(chat()), **extra}
    assert house.says(encode_frame(Kind.REQUEST, 1, body)) == [Kill(1, "fault_schema")]


# ---- calls: what core asks beside turns -------------------------------------------------------------


class KeptCall:
    """A call's sink that remembers."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.outcomes: list[Any] = []

    def item(self, body: Any) -> None:
        self.items.append(body)

    def finish(self, outcome: Any) -> None:
        self.outcomes.append(outcome)


def call(body: Any = None, timeout_s: float = 10.0) -> tuple[CallSpec, KeptCall]:
    sink = KeptCall()
    return CallSpec(FakeHandle("alice"), body or FileRead("notes.txt"), sink, timeout_s), sink


def ready(house: House) -> None:
    request = house.warm(house.spec())
    house.says(house.worker.reply(request, TurnEnd("stop")))


def test_a_call_starts_a_cold_jail_and_is_answered_item_by_item(house: House) -> None:
    spec, sink = call()
    assert house.do(house.state.start_call(spec, house.now_s)) == [Launch(1)]
    house.says(house.worker.hello("test"))
    asked = house.last()
    assert asked.body == FileRead("notes.txt")
    for _ in range(16):
        house.says(house.worker.item(asked.id, FileChunk(b"x")))
    assert house.worker.credit(asked.id) == 0
    house.do(house.state.grant_call(spec.name, 4))
    assert house.worker.credit(asked.id) == 4
    info = FileInfo("file", 16, 0)
    house.says(house.worker.reply(asked.id, info))
    assert sink.items == [FileChunk(b"x")] * 16
    assert sink.outcomes == [info]


def test_a_running_call_keeps_the_jail_from_being_idle(house: House) -> None:
    ready(house)
    spec, sink = call(timeout_s=10_000)
    house.do(house.state.start_call(spec, house.now_s))
    assert house.used[-1] == (1, True)
    assert house.do(house.state.evict(1, False, house.now_s)) == []
    house.says(house.worker.error(house.last().id, "not_found", "no such file"))
    assert sink.outcomes == [Failure("not_found", "no such file")]
    assert house.used[-1] == (1, False)
    house.do(house.state.evict(1, False, house.now_s))
    assert house.last().verb == "drain"


def test_a_call_past_its_time_fails_and_is_cancelled(house: House) -> None:
    ready(house)
    spec, sink = call()
    house.do(house.state.start_call(spec, house.now_s))
    asked = house.last()
    house.now_s += 10.1
    house.do(house.state.tick(house.now_s))
    assert house.last() == CancelCame(asked.id)
    assert [o.code for o in sink.outcomes] == ["timeout"]
    house.says(house.worker.error(asked.id, "cancelled", "stopped"))
    assert len(sink.outcomes) == 1


def test_a_cancelled_call_ends_at_once_and_a_jail_that_dies_fails_the_rest(house: House) -> None:
    ready(house)
    (first, gone), (second, lost) = call(), call()
    for spec in (first, second):
        house.do(house.state.start_call(spec, house.now_s))
    house.do(house.state.cancel_call(first.name, house.now_s))
    house.do(house.state.jail_closed(1, None, house.now_s))
    assert [o.code for o in gone.outcomes] == ["cancelled"]
    assert [o.code for o in lost.outcomes] == ["worker"]


def test_a_worker_that_never_closes_cancelled_calls_is_not_asked_without_end(house: House) -> None:
    ready(house)
    refused = 0
    for _ in range(200):
        spec, sink = call()
        house.do(house.state.start_call(spec, house.now_s))
        house.do(house.state.cancel_call(spec.name, house.now_s))
        refused += sink.outcomes[0].code == "overloaded"
    assert refused == 200 - 64


def test_calls_end_when_the_server_stops_or_no_jail_can_be_had(house: House) -> None:
    spec, sink = call()
    house.do(house.state.start_call(spec, house.now_s))
    house.do(house.state.jail_failed(1, no_jail("no namespaces"), house.now_s))
    assert "no namespaces" in sink.outcomes[0].message
    house.do(house.state.leave(house.now_s))
    late, told = call()
    house.do(house.state.start_call(late, house.now_s))
    assert [o.code for o in told.outcomes] == ["unavailable"]


def begun(house: House) -> TurnSpec:
    """A turn that runs in a ready jail."""
    spec = house.spec()
    house.warm(spec)
    return spec


def test_a_turn_whose_jail_dies_may_be_started_anew_and_one_at_fault_may_not(house: House) -> None:
    spec = begun(house)
    house.do(house.state.jail_exited(1, "killed", house.now_s))
    assert (house.sink(spec).outcome.code, house.sink(spec).again) == ("worker", [True])  # type: ignore[union-attr]
    other = House()
    spec = begun(other)
    other.says(b"rubbish")
    assert other.sink(spec).again == [False]


def test_a_turn_that_was_cancelled_or_killed_by_an_operator_just_fails(house: House) -> None:
    spec = begun(house)
    house.do(house.state.jail_killed(1))
    house.do(house.state.jail_exited(1, "killed", house.now_s))
    assert isinstance(house.sink(spec).outcome, Failure)
    assert (house.sink(spec).again, "operator" in str(house.sink(spec).outcome)) == ([], True)
    other = House()
    spec = begun(other)
    other.do(other.state.cancel_turn(ONE, other.now_s))
    other.do(other.state.jail_exited(1, "killed", other.now_s))
    assert house.sink(spec).again == []


def test_a_turn_started_anew_goes_on_counting_its_steps(house: House) -> None:
    house.warm(dataclasses.replace(house.spec(), first_step=7))
    asked = next(event for event in house.seen if isinstance(event, Asked))
    assert asked.body.first_step == 7
