"""What a user actor decides, without a thread: stimuli in, instructions out.

    phase      what it means                           leaves it
    cold       no jail                                 a turn: Launch -> starting
    starting   asked for, or no HELLO yet              HELLO -> ready; deadline, failure -> ending
    ready      turns run                               evicted or told: Drain -> draining
    draining   takes nothing new                       end of file -> ending
    ending     killed or ended, not yet reaped         JailExited -> cold, or starting if turns wait

A turn is waiting (for a jail), running (its turn.start is open), or over. Whatever ends a life ends
its running turns with one failure each; waiting ones go on to the next life.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from actors.approvals import Answered, Approvals, Question
from actors.asking import ApprovalResolved, Resolution
from actors.calls import Call, Calls, CallSpec
from actors.instructions import (
    Append,
    CallEnd,
    CallItem,
    Cancel,
    Credit,
    Finish,
    Gone,
    Instruction,
    KeepApproval,
    Kill,
    Launch,
    Lost,
    Note,
    Say,
    Send,
    Serve,
    SettleApproval,
    TellAnswered,
    Used,
)
from actors.service import Mode, TurnSink, TurnSpec
from actors.user_messages import CANCELLED
from jail.wire.connection import (
    MAX_OPEN,
    STREAM_WINDOW,
    Asked,
    CancelCame,
    Connection,
    CreditCame,
    Event,
    Failed,
    ItemCame,
    PeerReady,
    Replied,
)
from jail.wire.errors import PeerFault
from jail.wire.schema import (
    ApprovalAsk,
    Body,
    ChatEnd,
    Done,
    Drain,
    ErrorCode,
    Failure,
    LogLine,
    SessionAppend,
    StepBegin,
    TurnEnd,
    TurnHold,
    TurnStart,
)

# A worker has that long to close a cancelled turn before its jail is killed (design.md 5).
_CANCEL_S = 2.0
# After its own wall clock the worker may still report; then core ends the turn.
_WALL_MARGIN_S = 5.0
_DRAIN_S = 10.0
# The spawner reaps a killed jail in milliseconds; past this it is taken as gone.
_REAP_S = 30.0
# From the end of a jail's channel to the spawner's word on how it ended: some milliseconds, when all is well.
_SAY_WHY_S = 2.0
_LAUNCHES_IN_A_ROW = 3
_GRANT_EVERY = STREAM_WINDOW // 4
_LOG_LINES = 50
# What one turn may add to its session, and how many steps it may journal: bounds on a hostile worker.
_APPEND_BYTES = 16 << 20
_STEPS = 20_000
_MAX_CALLS = 16
_FETCHES = 1_000
_QUESTIONS = 200
_FETCHES_AT_ONCE = 4
# what core itself ends when a turn is cancelled, whatever the worker does
_OUTSIDE = frozenset(("provider.chat", "http.fetch", "http.body"))

Phase = Literal["cold", "starting", "ready", "draining", "ending"]


# ---- state ----------------------------------------------------------------------------------------


_STOPPING = Failure("unavailable", "the server is stopping; try again", 5)
_KILLED = Failure("worker", "your jail was ended by the operator in the middle of the turn; try again")


@dataclass(slots=True)
class _Turn:
    spec: TurnSpec
    deadline_s: float
    request: int | None = None  # its turn.start; None while it waits for a jail
    verdict: Failure | None = None  # how core ended it, whatever the worker says
    rounds: int = 0
    output_tokens: int = 0
    steps: int = 0
    log_lines: int = 0
    fetches: int = 0
    questions: int = 0
    append_bytes: int = 0
    accepted: int = 0  # events accepted and not yet granted again
    allowed: set[tuple[int, str, str]] = field(default_factory=set)  # step, tool and arguments
    held_since_s: float | None = None  # a person is asked: its time stands still
    held_s: float = 0.0  # in all, before that
    told_held: bool = False
    telling: bool = False  # a turn.hold is under way

    @property
    def due_s(self) -> float:
        """When its time is up."""
        return self.deadline_s if self.held_since_s is None else math.inf


@dataclass(slots=True)
class _Open:
    turn: _Turn
    verb: str
    question: Question | None = None  # it waits for a person, and no service has it yet


@dataclass(slots=True)
class UserState:
    """The decisions.

    Args:
        next_life: numbers jails; unique in the process.
        mode: whether the agent may use a verb.
        start_timeout_s: from Launch to HELLO, the wait for room included.
        approvals: the questions to the user.
    """

    next_life: Callable[[], int]
    mode: Callable[[str], Mode]
    start_timeout_s: float
    approvals: Approvals = field(default_factory=Approvals)
    phase: Phase = "cold"
    life: int = 0
    _connection: Connection | None = None
    _turns: dict[str, _Turn] = field(default_factory=dict)
    _open: dict[int, _Open] = field(default_factory=dict)
    _by_request: dict[int, _Turn] = field(default_factory=dict)
    _calls: Calls = field(default_factory=Calls)
    _holds: dict[int, _Turn] = field(default_factory=dict)
    _drain_request: int = 0
    _phase_deadline_s: float | None = None
    _told_busy: bool | None = None  # what Used said last, in this life
    _retiring: bool = False  # this life begins nothing new
    _gone: bool = False  # its channel ended, and nobody said why yet
    _launched_s: float = 0.0
    _request: str = ""  # what this life was started for
    _fruitless: int = 0
    _leaving: bool = False
    _out: list[Instruction] = field(default_factory=list)

    # -- what the hub and the supervisor want -------------------------------------------------------

    def start_turn(self, spec: TurnSpec, now_s: float) -> list[Instruction]:
        """Run a turn, in the jail that is there or in one to be started."""
        if self._leaving:
            self._finish(spec.sink, _STOPPING)
        elif spec.turn in self._turns:
            raise ValueError("a turn's id was used twice")
        else:
            turn = _Turn(spec, now_s + spec.agent.limits.wall_s + _WALL_MARGIN_S)
            self._turns[spec.turn] = turn
            if self._begins:
                self._begin(turn)
            elif self.phase == "cold":
                self._launch(now_s)
        return self._take()

    def cancel_turn(self, turn_id: str, now_s: float, why: str = CANCELLED) -> list[Instruction]:
        """End a turn early; silent for one that is over."""
        turn = self._turns.get(turn_id)
        if turn is not None:
            self._end_early(turn, Failure("cancelled", why), now_s)
        return self._take()

    def start_call(self, spec: CallSpec, now_s: float) -> list[Instruction]:
        """Make a request of the jail, in the one that is there or in one to be started."""
        if self._leaving:
            self._out.append(CallEnd(spec.sink, _STOPPING))
        elif len(self._calls) >= _MAX_CALLS or self._open_asks >= MAX_OPEN:
            # a worker that never closes what was cancelled runs into the second
            self._out.append(CallEnd(spec.sink, Failure("overloaded", "too much is asked at once", 1)))
        else:
            call = self._calls.add(spec, now_s)
            if self._begins:
                self._begin_call(call)
            elif self.phase == "cold":
                self._launch(now_s)
        return self._take()

    def grant_call(self, name: int, count: int) -> list[Instruction]:
        """Let ``count`` more items of a call come; silent for one that is over."""
        call = self._calls.by_name(name)
        if call is not None and call.request is not None:
            self._send(self._link.grant(call.request, count))
        return self._take()

    def cancel_call(self, name: int, now_s: float) -> list[Instruction]:
        """End a call early; silent for one that is over."""
        call = self._calls.by_name(name)
        if call is not None:
            self._end_call_early(call, Failure("cancelled", "it was cancelled"), now_s)
        return self._take()

    def leave(self, now_s: float) -> list[Instruction]:
        """Take no new turn, end when the running ones have; Gone follows."""
        self._leaving = True
        for turn in [t for t in self._turns.values() if t.request is None]:
            self._end_turn(turn, _STOPPING)
        for call in self._calls.waiting():
            self._end_call(call, _STOPPING)
        self._drain_if_done(now_s)
        self._say_gone()
        return self._take()

    # -- what happens to the jail -------------------------------------------------------------------

    def evict(self, life: int, wait: bool, now_s: float) -> list[Instruction]:
        """Drain this life: with ``wait`` once what runs in it has ended, else only if nothing does.

        What comes meanwhile waits for the next life.
        """
        if life == self.life and (wait or (self.phase == "ready" and not self._busy)):
            self._retiring = True
            self._drain_if_done(now_s)
        return self._take()

    def jail_failed(self, life: int, failure: Failure, now_s: float) -> list[Instruction]:
        """It could not be started, or there is no room for it."""
        if life == self.life and self.phase == "starting":
            self._end_waiting(failure)
            self._to_cold(now_s)
        return self._take()

    def jail_closed(self, life: int, fault: PeerFault | None, now_s: float) -> list[Instruction]:
        """Its channel ended: a fault of the worker's, or its process is gone."""
        if life == self.life and self.phase in ("starting", "ready", "draining"):
            self._end_life(fault, "ended", now_s)
        return self._take()

    def jail_killed(self, life: int) -> list[Instruction]:
        """An operator ends it: JailExited follows."""
        if life == self.life:
            for turn in self._turns.values():
                if turn.request is not None:
                    turn.verdict = turn.verdict or _KILLED
        return self._take()

    def jail_gone(self, life: int, now_s: float) -> list[Instruction]:
        """Its channel ended without a fault: while something runs in it, wait a moment to hear why."""
        if life != self.life or self.phase != "ready" or not self._runs:
            return self.jail_closed(life, None, now_s)
        self._gone = self._retiring = True
        self._phase_deadline_s = now_s + _SAY_WHY_S
        return self._take()

    def jail_exited(
        self, life: int, how: str, now_s: float, failure: Failure | None = None
    ) -> list[Instruction]:
        """All its processes were reaped; ``failure`` says which limit it met."""
        if life == self.life and self.phase != "cold":
            if self.phase != "ending":
                told = "ended" if self._gone else how
                self._end_life(None, "limit" if failure is not None else told, now_s, failure)
            self._to_cold(now_s)
        return self._take()

    def frames(self, life: int, payloads: list[bytes], now_s: float) -> list[Instruction]:
        """Messages of the jail's, oldest first."""
        for payload in payloads:
            if life != self.life or self._connection is None:
                break
            try:
                events = self._connection.receive(payload)
                self._out += [Send(answer) for answer in self._connection.take_answers()]
                for event in events:
                    self._on_event(event, len(payload), now_s)
            except PeerFault as fault:
                self._end_life(fault, "fault", now_s)
        return self._take()

    # -- what services answer -----------------------------------------------------------------------

    def answered_item(self, life: int, request_id: int, body: Body) -> list[Instruction]:
        """An item of a verb's stream."""
        if self._is_open(life, request_id):
            self._send(self._link.item(request_id, body))
        return self._take()

    def answered(self, life: int, request_id: int, body: Body) -> list[Instruction]:
        """A verb's result."""
        if self._is_open(life, request_id):
            if isinstance(body, ChatEnd):
                self._open[request_id].turn.output_tokens += body.usage.output_tokens
            del self._open[request_id]
            self._send(self._link.reply(request_id, body))
        return self._take()

    def answered_error(self, life: int, request_id: int, failure: Failure) -> list[Instruction]:
        """A verb's error."""
        if self._is_open(life, request_id):
            del self._open[request_id]
            self._refuse(request_id, failure.code, failure.message, failure.retry_after_s)
        return self._take()

    def accepted(self, life: int, turn_id: str, count: int) -> list[Instruction]:
        """The log holds ``count`` more of a turn's events: let the worker send as many again."""
        turn = self._turns.get(turn_id)
        if life == self.life and turn is not None and turn.request is not None:
            turn.accepted += count
            if turn.accepted >= _GRANT_EVERY:
                self._send(self._link.grant(turn.request, turn.accepted))
                turn.accepted = 0
        return self._take()

    # -- what people answer, and what is written of it ------------------------------------------------

    def answer_approval(
        self, approval: str, allow: bool, answered: Answered, now_s: float
    ) -> list[Instruction]:
        """A person's answer to a question. Only the first counts, and none after its time."""
        question = self.approvals.get(approval)
        if question is None or question.state != "open" or now_s >= question.deadline_s:
            self._out.append(TellAnswered(answered, None))
        else:
            question.answered = answered
            self._decide(question, "allowed" if allow else "refused", now_s)
        return self._take()

    def approval_kept(self, approval: str, failure: Failure | None, now_s: float) -> list[Instruction]:
        """A question was written down, or could not be: then its request fails."""
        question = self.approvals.kept(approval)
        if question is None:
            return self._take()
        if failure is None:
            self._out.append(Say(question.spec.sink, question.wanted))
        else:
            self.approvals.forget(approval)
            if self._open.pop(question.request, None) is not None:
                self._refuse(question.request, failure.code, failure.message, failure.retry_after_s)
            self._mind_clock(question.spec.turn, now_s)
        return self._take()

    def approval_settled(self, approval: str, failure: Failure | None) -> list[Instruction]:
        """How a question was decided is written down: only now may what was asked for act."""
        question = self.approvals.forget(approval)
        if question is None:
            return self._take()
        if question.answered is not None:
            self._out.append(TellAnswered(question.answered, question.outcome, failure))
        if not question.dropped:
            self._go_on(question, failure)
        return self._take()

    # -- time ---------------------------------------------------------------------------------------

    def next_deadline_s(self) -> float | None:
        """When :meth:`tick` is due, or None."""
        times = [turn.deadline_s for turn in self._turns.values() if turn.held_since_s is None]
        if (answer_s := self.approvals.next_deadline_s()) is not None:
            times.append(answer_s)
        if (late_s := self._calls.next_deadline_s()) is not None:
            times.append(late_s)
        if self._phase_deadline_s is not None:
            times.append(self._phase_deadline_s)
        return min(times, default=None)

    def tick(self, now_s: float) -> list[Instruction]:
        """Deal with every deadline that has passed."""
        for question in self.approvals.late(now_s):
            self._decide(question, "expired", now_s)
        for turn in [t for t in self._turns.values() if now_s >= t.due_s]:
            if turn.spec.turn not in self._turns:
                continue  # it went with the life that an earlier one ended
            if turn.verdict is None:
                message = f"the turn took longer than {turn.spec.agent.limits.wall_s} s"
                self._end_early(turn, Failure("limit", message), now_s)
            elif self.phase in ("ready", "draining"):
                self._end_life(None, "cancel_ignored", now_s)
        for call in self._calls.late(now_s):
            message = f"the jail did not answer within {call.spec.timeout_s:g} s"
            self._end_call_early(call, Failure("timeout", message), now_s)
        if self._phase_deadline_s is not None and now_s >= self._phase_deadline_s:
            self._on_phase_deadline(now_s)
        self._drain_if_done(now_s)
        return self._take()

    def _on_phase_deadline(self, now_s: float) -> None:
        match self.phase:
            case "starting":
                self._end_life(PeerFault("deadline", "no handshake in time"), "fault", now_s)
            case "draining":
                self._end_life(None, "drain_ignored", now_s)
            case "ready":  # nobody said why it is gone
                self._end_life(None, "ended", now_s)
            case "ending":
                self._note("jail_reap_timed_out", life=self.life)
                self._to_cold(now_s)

    # -- events of the connection ---------------------------------------------------------------------

    def _on_event(self, event: Event, size: int, now_s: float) -> None:
        match event:
            case PeerReady(software):
                self._on_ready(software, now_s)
            case Asked(request_id, verb, body):
                self._on_asked(request_id, verb, body, size, now_s)
            case ItemCame(request_id, body):
                turn = self._by_request.get(request_id)
                if (call := self._calls.by_request(request_id)) is not None:
                    self._out.append(CallItem(call.spec.sink, body))
                elif turn is not None:
                    self._out.append(Append(turn.spec.sink, self.life, turn.spec.turn, body))
            case Replied(request_id, body):
                self._on_closed(request_id, body, now_s)
            case Failed(request_id, failure):
                self._on_closed(request_id, failure, now_s)
            case CreditCame(request_id, count):
                if (found := self._open.get(request_id)) and found.question is None:
                    self._out.append(Credit(self.life, request_id, found.verb, count))
            case CancelCame(request_id):
                if found := self._open.pop(request_id, None):
                    self._abandon(request_id, found)
                    self._refuse(request_id, "cancelled", "cancelled by the worker")
                    self._mind_clock(found.turn.spec.turn, now_s)

    def _on_ready(self, software: str, now_s: float) -> None:
        self.phase = "ready"
        self._phase_deadline_s = None
        self._fruitless = 0
        start_s = now_s - self._launched_s
        self._note("jail_ready", life=self.life, software=software, start_s=start_s, request_id=self._request)
        for turn in list(self._turns.values()):
            self._begin(turn)
        for call in self._calls.waiting():
            self._begin_call(call)
        self._drain_if_done(now_s)

    def _on_closed(self, request_id: int, outcome: Body, now_s: float) -> None:
        if request_id == self._drain_request:
            return  # the end of file follows
        if (held := self._holds.pop(request_id, None)) is not None:
            held.telling = False
            self._tell_held(held)
            return
        turn = self._by_request.get(request_id)
        if (call := self._calls.by_request(request_id)) is not None:
            self._end_call(call, outcome)
        elif turn is not None:
            assert isinstance(outcome, TurnEnd | Failure)
            self._end_turn(turn, turn.verdict or outcome)
        self._drain_if_done(now_s)

    def _on_asked(self, request_id: int, verb: str, body: Any, size: int, now_s: float) -> None:
        turn = self._turns.get(body.turn)
        if turn is None or turn.request is None:
            self._refuse(request_id, "not_found", "no such turn runs")
            return
        refusal = self._refusal(turn, verb, body, size)
        if refusal is not None:
            self._refuse(request_id, refusal.code, refusal.message)
        elif isinstance(body, LogLine):
            self._note(
                "worker_logged", level=body.level, worker_event=body.event, detail=body.detail,
                turn=turn.spec.turn, request_id=turn.spec.request,
            )  # fmt: skip
            self._send(self._link.reply(request_id, Done()))
        elif isinstance(body, ApprovalAsk) or self.mode(verb) == "ask":
            self._ask_person(turn, request_id, verb, body, now_s)
        else:
            self._open[request_id] = _Open(turn, verb)
            self._out.append(Serve(turn.spec, self.life, request_id, verb, body))

    def _refusal(self, turn: _Turn, verb: str, body: Any, size: int) -> Failure | None:
        """Why this request is not served: the policy, the turn's limits, or None."""
        if self.mode(verb) == "off":
            return Failure("refused", f"{verb} is switched off on this server")
        limits = turn.spec.agent.limits
        match verb:
            case "provider.chat":
                if turn.verdict is not None:
                    return Failure("cancelled", turn.verdict.message)
                if self._has_open(turn, verb):
                    return Failure("limit", "one provider.chat at a time in a turn")
                turn.rounds += 1
                if turn.rounds > limits.rounds:
                    return Failure("limit", f"more than {limits.rounds} rounds in a turn")
                if turn.output_tokens >= limits.output_tokens:
                    return Failure("limit", f"more than {limits.output_tokens} tokens in a turn")
            case "http.fetch" | "http.body":
                if turn.verdict is not None:
                    return Failure("cancelled", turn.verdict.message)
                if verb == "http.fetch":
                    return self._fetch_refusal(turn)
            case "step.begin" | "step.end":
                if verb == "step.begin" and turn.verdict is not None:
                    return Failure("cancelled", turn.verdict.message)
                if isinstance(body, StepBegin) and body.tool in turn.spec.agent.ask:
                    allowed = (body.step, body.tool, body.arguments)
                    if allowed not in turn.allowed:
                        return Failure("approval_required", f"{body.tool} needs an approval for this call")
                    turn.allowed.discard(allowed)
                turn.steps += 1
                if turn.steps > _STEPS:
                    return Failure("limit", f"more than {_STEPS} steps in a turn")
            case "approval.ask":
                if turn.verdict is not None:
                    return Failure("cancelled", turn.verdict.message)
                if body.tool not in turn.spec.agent.ask:
                    return Failure("invalid", f"{body.tool} needs no approval")
            case "session.load":
                if self._has_open(turn, verb):
                    return Failure("limit", "one session.load at a time in a turn")
            case "session.append":
                assert isinstance(body, SessionAppend)
                turn.append_bytes += size
                if turn.append_bytes > _APPEND_BYTES:
                    return Failure("limit", f"more than {_APPEND_BYTES} bytes appended in a turn")
            case "log":
                turn.log_lines += 1
                if turn.log_lines > _LOG_LINES:
                    return Failure("limit", f"more than {_LOG_LINES} log lines in a turn")
        return None

    def _has_open(self, turn: _Turn, verb: str) -> bool:
        return any(o.turn is turn and o.verb == verb for o in self._open.values())

    def _fetch_refusal(self, turn: _Turn) -> Failure | None:
        turn.fetches += 1
        if turn.fetches > _FETCHES:
            return Failure("limit", f"more than {_FETCHES} fetches in a turn")
        if sum(o.turn is turn and o.verb == "http.fetch" for o in self._open.values()) >= _FETCHES_AT_ONCE:
            return Failure("limit", f"more than {_FETCHES_AT_ONCE} fetches at once in a turn")
        return None

    # -- questions to people --------------------------------------------------------------------------

    def _ask_person(self, turn: _Turn, request_id: int, verb: str, body: Any, now_s: float) -> None:
        """Hold a request until its user has answered."""
        turn.questions += 1
        if turn.questions > _QUESTIONS:
            # whatever becomes of one, it is written down and shown to whoever watches
            self._refuse(request_id, "limit", f"more than {_QUESTIONS} questions to a person in a turn")
            return
        since_s = turn.held_since_s
        held_s = turn.held_s + (now_s - since_s if since_s is not None else 0.0)
        found = self.approvals.ask(turn.spec, request_id, verb, body, held_s, now_s)
        if isinstance(found, Failure):
            self._refuse(request_id, found.code, found.message)
            return
        self._open[request_id] = _Open(turn, verb, found)
        self._out.append(KeepApproval(found))
        self._mind_clock(turn.spec.turn, now_s)

    def _decide(self, question: Question, outcome: Resolution, now_s: float) -> None:
        if self.approvals.decide(question, outcome):
            self._out.append(SettleApproval(question, outcome))
            self._mind_clock(question.spec.turn, now_s)

    def _go_on(self, question: Question, failure: Failure | None) -> None:
        """Do what was asked for, or refuse it."""
        assert question.outcome is not None
        found, turn = self._open[question.request], self._turns[question.spec.turn]
        self._out.append(Say(question.spec.sink, ApprovalResolved(question.id, question.outcome)))
        if question.outcome != "allowed" or failure is not None:
            del self._open[question.request]
            refused = failure or question.refusal()
            self._refuse(question.request, refused.code, refused.message, refused.retry_after_s)
        elif isinstance(question.body, ApprovalAsk):
            del self._open[question.request]
            turn.allowed.add((question.body.step, question.body.tool, question.body.arguments))
            self._send(self._link.reply(question.request, Done()))
        else:
            found.question = None
            self._out.append(Serve(turn.spec, self.life, question.request, question.verb, question.body))

    def _abandon(self, request_id: int, found: _Open) -> None:
        """A request is no longer wanted: its service is told, or the person no longer asked."""
        question = found.question
        if question is None:
            self._out.append(Cancel(self.life, request_id, found.verb))
            return
        shown = question.state != "storing"
        if self.approvals.decide(question, "ended"):
            self._out.append(SettleApproval(question, "ended"))
        question.dropped = True
        if shown and question.outcome is not None:
            self._out.append(Say(question.spec.sink, ApprovalResolved(question.id, question.outcome)))

    def _mind_clock(self, turn_id: str, now_s: float) -> None:
        """A turn's time stands still while a person is asked: nobody is to answer in a hurry."""
        turn = self._turns.get(turn_id)
        if turn is None:
            return
        waits = any(question.state != "settling" for question in self.approvals.of_turn(turn_id))
        if waits and turn.held_since_s is None:
            turn.held_since_s = now_s
        elif not waits and turn.held_since_s is not None:
            turn.held_s += now_s - turn.held_since_s
            turn.deadline_s += now_s - turn.held_since_s
            turn.held_since_s = None
        self._tell_held(turn)

    def _tell_held(self, turn: _Turn) -> None:
        """Tell the worker, which has a clock of its own; one such request at a time."""
        held = turn.held_since_s is not None
        if held is turn.told_held or turn.telling or turn.spec.turn not in self._turns:
            return
        turn.told_held, turn.telling = held, True
        request_id, data = self._link.request(TurnHold(turn.spec.turn, held))
        self._holds[request_id] = turn
        self._send(data)

    # -- lives ----------------------------------------------------------------------------------------

    def _launch(self, now_s: float) -> None:
        self.life = self.next_life()
        self.phase = "starting"
        self._launched_s = now_s
        self._told_busy, self._retiring, self._gone = None, False, False
        self._phase_deadline_s = now_s + self.start_timeout_s
        self._connection = Connection("core", now_s, self.start_timeout_s)
        self._request = self._asked_by()
        self._out.append(Launch(self.life, self._request))

    def _asked_by(self) -> str:
        """The id of what waits longest."""
        asked = [turn.spec.request for turn in self._turns.values()]
        asked += [call.spec.request for call in self._calls.waiting()]
        return next(filter(None, asked), "")

    def _drain_if_done(self, now_s: float) -> None:
        """Where this life is to end and nothing runs in it any more."""
        if self.phase == "ready" and (self._leaving or self._retiring) and not self._runs:
            if self._gone:
                self._end_life(None, "ended", now_s)
            else:
                self._drain(now_s)

    def _drain(self, now_s: float) -> None:
        self.phase = "draining"
        self._phase_deadline_s = now_s + _DRAIN_S
        self._drain_request, data = self._link.request(Drain())
        self._send(data)

    def _end_life(
        self, fault: PeerFault | None, how: str, now_s: float, failure: Failure | None = None
    ) -> None:
        """The jail is over: close everything that stood on it, and wait for it to be reaped."""
        drained = self.phase == "draining" and fault is None and how == "ended"
        reason = f"fault_{fault.reason}" if fault else ("drained" if drained else how)
        if self.phase == "starting":
            self._fruitless += 1
        self.phase = "ending"
        self._phase_deadline_s = now_s + _REAP_S
        self._connection = None
        if fault is not None:
            self._note("peer_faulted", life=self.life, reason=fault.reason, detail=fault.detail)
        for turn in [t for t in self._turns.values() if t.request is not None]:
            self._drop_requests(turn)
            self._lose_turn(turn, failure or _lost(fault), again=fault is None and failure is None)
        for call in self._calls.running():
            self._end_call(call, failure or _lost(fault))
        if self._fruitless >= _LAUNCHES_IN_A_ROW:
            self._fruitless = 0
            self._end_waiting(Failure("unavailable", "your jail fails at every start; tell the operator"))
        self._open.clear()
        self._by_request.clear()
        self._holds.clear()
        self._drain_request = 0
        self._out.append(Kill(self.life, reason))

    def _to_cold(self, now_s: float) -> None:
        self.phase = "cold"
        self._phase_deadline_s = None
        self._connection = None
        if self._busy:
            self._launch(now_s)
        self._say_gone()

    def _say_gone(self) -> None:
        if self._leaving and self.phase == "cold":
            self._out.append(Gone())

    def _end_waiting(self, failure: Failure) -> None:
        """No jail comes: end whatever waits for one, which is everything."""
        for turn in list(self._turns.values()):
            self._end_turn(turn, failure)
        for call in self._calls.waiting():
            self._end_call(call, failure)

    # -- calls ----------------------------------------------------------------------------------------

    @property
    def _open_asks(self) -> int:
        return len(self._connection.open_asks) if self._connection is not None else 0

    @property
    def _busy(self) -> bool:
        """Whether anything runs or waits."""
        return bool(self._turns or self._calls)

    @property
    def _runs(self) -> bool:
        """Whether anything runs in this life."""
        return bool(self._by_request) or any(True for _ in self._calls.running())

    @property
    def _begins(self) -> bool:
        return self.phase == "ready" and not self._retiring

    def _begin_call(self, call: Call) -> None:
        request_id, data = self._link.request(call.spec.body)
        self._calls.begun(call, request_id)
        self._send(data)

    def _end_call_early(self, call: Call, failure: Failure, now_s: float) -> None:
        """The jail may still work on it, but nobody waits; its closing frame will be ignored."""
        if call.request is not None:
            self._send(self._link.cancel(call.request))
        self._end_call(call, failure)
        self._drain_if_done(now_s)

    def _end_call(self, call: Call, outcome: Body | Failure) -> None:
        self._calls.remove(call)
        self._out.append(CallEnd(call.spec.sink, outcome))

    # -- turns ----------------------------------------------------------------------------------------

    def _begin(self, turn: _Turn) -> None:
        spec = turn.spec
        start = TurnStart(spec.turn, spec.agent, spec.request, spec.first_step)
        request_id, data = self._link.request(start)
        turn.request = request_id
        self._by_request[request_id] = turn
        self._send(data)

    def _end_early(self, turn: _Turn, verdict: Failure, now_s: float) -> None:
        if turn.request is None:
            self._end_turn(turn, verdict)
        elif turn.verdict is None:
            turn.verdict = verdict
            ours = [(i, o) for i, o in self._open.items() if o.turn is turn]
            for request_id, found in ours:
                if found.verb in _OUTSIDE or found.question is not None:
                    del self._open[request_id]
                    self._abandon(request_id, found)
                    self._refuse(request_id, "cancelled", verdict.message)
            self._mind_clock(turn.spec.turn, now_s)
            turn.deadline_s = now_s + _CANCEL_S
            self._send(self._link.cancel(turn.request))

    def _end_turn(self, turn: _Turn, outcome: TurnEnd | Failure) -> None:
        del self._turns[turn.spec.turn]
        if turn.request is not None:
            self._by_request.pop(turn.request, None)
            if self._connection is not None:
                for request_id in self._drop_requests(turn):
                    self._refuse(request_id, "cancelled", "the turn is over")
        self._finish(turn.spec.sink, outcome)

    def _lose_turn(self, turn: _Turn, failure: Failure, again: bool) -> None:
        if turn.verdict is not None:
            self._end_turn(turn, turn.verdict)
        else:
            del self._turns[turn.spec.turn]
            self._out.append(Lost(turn.spec.sink, failure, again))

    def _drop_requests(self, turn: _Turn) -> list[int]:
        ids = [i for i, o in self._open.items() if o.turn is turn]
        for request_id in ids:
            self._abandon(request_id, self._open.pop(request_id))
        return ids

    # -- small change -----------------------------------------------------------------------------------

    @property
    def _link(self) -> Connection:
        assert self._connection is not None
        return self._connection

    def _is_open(self, life: int, request_id: int) -> bool:
        return life == self.life and self._connection is not None and request_id in self._open

    def _refuse(
        self, request_id: int, code: ErrorCode, message: str, retry_after_s: int | None = None
    ) -> None:
        self._send(self._link.error(request_id, code, message, retry_after_s))

    def _send(self, data: bytes) -> None:
        self._out.append(Send(data))

    def _finish(self, sink: TurnSink, outcome: TurnEnd | Failure) -> None:
        self._out.append(Finish(sink, outcome))

    def _note(self, event: str, **values: Any) -> None:
        self._out.append(Note(event, values))

    def _take(self) -> list[Instruction]:
        if self.phase == "ready" and self._busy is not self._told_busy:
            self._told_busy = self._busy
            self._out.append(Used(self.life, self._busy))
        out, self._out = self._out, []
        return out


def _lost(fault: PeerFault | None) -> Failure:
    if fault is not None:
        return Failure("worker", f"your jail broke the protocol ({fault.reason}) and was ended; try again")
    return Failure("worker", "your jail ended in the middle of the turn (crash or out of memory); try again")
