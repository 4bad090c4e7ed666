"""The user actor: the shell around :mod:`actors.user_state`, and the owner of one user's jail.

It alone talks to the jail. Whose jail it is stands in the actor, not in any frame: everything that
comes over its channel is the user's own agent, everything handed to it for another user is refused.
"""

import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from actors.approvals import ApprovalRules, Approvals, Question
from actors.base import Ref, tell, void
from actors.channel import Bounds, Channel
from actors.edge import Edge
from actors.hosted import HostedActor
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
from actors.observer import Observer
from actors.service import ActorsError, ApprovalBook, Mode, RequestKey, Service, TurnSpec, VerbRequest
from actors.user_messages import (
    Accepted,
    AnswerApproval,
    Answered,
    AnsweredError,
    AnsweredItem,
    ApprovalKept,
    ApprovalSettled,
    CancelCall,
    CancelTurn,
    Closed,
    EvictJail,
    Frames,
    GrantCall,
    JailExited,
    JailFailed,
    JailKilled,
    JailStarted,
    Leave,
    StartCall,
    StartTurn,
    Tick,
)
from actors.user_state import UserState
from jail.wire.errors import CertosaError, PeerFault
from jail.wire.frames import MAX_FRAME_BYTES, kind_name
from jail.wire.schema import Body, ErrorCode, Failure, History
from jail.wire.zmtp import Zmtp

# what a life's end says of its jail, where that is not the reason itself
_FAULTLESS: dict[str, str | None] = {
    "drained": None, "drain_ignored": None, "cancel_ignored": None, "ended": "",
}  # fmt: skip
_SHORT_BYTES = 4_096
"""Frames up to this are checked on the edge's own thread, where every other jail waits meanwhile."""
_MIXED_UP = Failure("internal", "the server mixed up two users; nothing was run")


class MixedUp(ActorsError):
    """Something of one user's was handed to another's actor: a bug of ours."""


class Jails(Protocol):
    """Starts and ends jails: the pool, and below it the spawner. Thread-safe."""

    def launch(self, life: int, user: str, owner: Ref, request: str) -> None:
        """Start a jail; ``owner`` is told JailStarted or JailFailed, later JailExited.

        ``request`` is the id of what it is first for ("": nobody's), for logs.
        """
        ...

    def used(self, life: int, busy: bool) -> None:
        """A jail is ready, or whether something runs in it has changed."""
        ...

    def kill(self, life: int, fault: str | None) -> None:
        """End a jail; harmless when it has ended. ``fault``: its own ("" for one not known), or None."""
        ...


class _Reply:
    """How a service answers one request: it tells the actor, which knows whether it is still open.

    What it answers within ``serve``, on the actor's own thread, is kept instead: that saves a message
    to oneself.
    """

    __slots__ = ("_at_once", "_id", "_life", "_ref", "_thread")

    def __init__(self, ref: Ref, life: int, request_id: int) -> None:
        self._ref = ref
        self._life = life
        self._id = request_id
        self._thread = threading.get_ident()
        self._at_once: list[Any] | None = []

    def item(self, body: Body) -> None:
        self._say(AnsweredItem(self._life, self._id, body))

    def done(self, body: Body) -> None:
        self._say(Answered(self._life, self._id, body))

    def fail(self, code: ErrorCode, message: str, retry_after_s: int | None = None) -> None:
        failure = Failure(code, message[:2_000], retry_after_s)
        self._say(AnsweredError(self._life, self._id, failure))

    def _say(self, message: Any) -> None:
        if self._at_once is not None and threading.get_ident() == self._thread:
            self._at_once.append(message)
        else:
            tell(self._ref, message)

    def end_of_call(self) -> list[Any]:
        """What was answered within the call; from now on every answer is told."""
        answers, self._at_once = self._at_once or [], None
        return answers


class UserActor(HostedActor):
    """One user's: owns their jail, runs their turns.

    Args:
        user: whose; every spec and every jail is checked against it.
        edge: where the jail's channel lives, and whose thread the actor runs on.
        bounds: gives those of a jail's channel, at each start.
        jails: how jails start and end.
        services: by verb, who serves it.
        mode: whether this user's agent may use a verb.
        book: keeps questions to this user.
        rules: the bounds of those.
        next_life, start_timeout_s: see UserState.
    """

    def __init__(
        self,
        name: str,
        parent: Ref | None,
        observer: Observer,
        *,
        user: str,
        edge: Edge,
        bounds: Callable[[], Bounds],
        jails: Jails,
        services: Mapping[str, Service],
        mode: Callable[[str], Mode],
        book: ApprovalBook,
        next_life: Callable[[], int],
        start_timeout_s: float,
        rules: ApprovalRules,
    ) -> None:
        super().__init__(name, parent, observer, edge)
        self._user = user
        self._edge = edge
        self._bounds = bounds
        self._jails = jails
        self._services = services
        self._book = book
        self._state = UserState(next_life, mode, start_timeout_s, Approvals(rules))
        self._channel: Channel | None = None
        self._armed_s: float | None = None

    def takes_long(self, message: Any) -> bool:
        """Frames that may: a value takes a microsecond or two to check, and a byte may be one."""
        return isinstance(message, Frames) and sum(map(len, message.payloads)) > _SHORT_BYTES

    def handle(self, message: Any) -> Any:
        """One stimulus: decide, carry out, and arm the next deadline."""
        self._carry_out(self._decide(message))
        self._arm()
        return None

    def teardown(self) -> None:
        """An actor that ends takes its jail along; its turns fail, those that wait for another too."""
        state, now_s = self._state, time.monotonic()
        if state.phase not in ("cold", "ending"):
            self._carry_out(state.jail_closed(state.life, None, now_s))
        if state.phase != "cold":
            self._carry_out(state.leave(now_s))
        self._close_channel()

    def _decide(self, message: Any) -> list[Instruction]:
        now, state = time.monotonic(), self._state
        match message:
            case Frames(life, payloads):
                began_s = time.thread_time()
                instructions = state.frames(life, payloads, now)
                if life == state.life:  # a life's channel counts its own
                    self._charge(began_s, len(payloads))
                for payload in payloads:
                    self.observer.frame("in", kind_name(payload), len(payload))
                return instructions
            case AnsweredItem(life, request_id, body):
                began_s = time.thread_time()
                instructions = state.answered_item(life, request_id, body)
                if isinstance(body, History) and life == state.life:  # made because the jail asked for it
                    self._charge(began_s)
                return instructions
            case Answered(life, request_id, body):
                return state.answered(life, request_id, body)
            case AnsweredError(life, request_id, failure):
                return state.answered_error(life, request_id, failure)
            case Accepted(life, turn, count):
                return state.accepted(life, turn, count)
            case Tick(due_s):
                if due_s != self._armed_s:
                    return []
                self._armed_s = None
                return state.tick(now)
            case AnswerApproval(approval, allow, answered):
                return state.answer_approval(approval, allow, answered, now)
            case ApprovalKept(approval, lost):
                return state.approval_kept(approval, lost, now)
            case ApprovalSettled(approval, lost):
                return state.approval_settled(approval, lost)
            case StartTurn(spec):
                self._check(spec)
                return state.start_turn(spec, now)
            case StartCall(call):
                if call.handle.user != self._user:
                    call.sink.finish(_MIXED_UP)
                    raise MixedUp(f"a call with a handle of another user's reached {self.name}")
                return state.start_call(call, now)
            case GrantCall(name, count):
                return state.grant_call(name, count)
            case CancelCall(name):
                return state.cancel_call(name, now)
            case CancelTurn(turn, why):
                return state.cancel_turn(turn, now, why)
            case JailStarted(life, sock):
                self._on_started(life, sock)
                return []
            case JailFailed(life, failure):
                return state.jail_failed(life, failure, now)
            case EvictJail(life, wait):
                return state.evict(life, wait, now)
            case JailKilled(life):
                return state.jail_killed(life)
            case JailExited(life, how, failure):
                return state.jail_exited(life, how, now, failure)
            case Closed(life, None):
                return state.jail_gone(life, now)
            case Closed(life, fault):
                return state.jail_closed(life, fault, now)
            case Leave():
                return state.leave(now)
        raise TypeError(f"unknown message {type(message).__name__}")

    def _check(self, spec: TurnSpec) -> None:
        if spec.handle.user != self._user:
            spec.sink.finish(_MIXED_UP)
            raise MixedUp(f"a turn with a handle of another user's reached {self.name}")

    def _on_started(self, life: int, sock: socket.socket) -> None:
        if life != self._state.life or self._state.phase != "starting":
            sock.close()
            return
        me = self.actor_ref

        def deliver(_channel: Channel, payloads: list[bytes]) -> None:
            tell(me, Frames(life, payloads))

        def closed(_channel: Channel, error: CertosaError | None) -> None:
            tell(me, Closed(life, error if isinstance(error, PeerFault) else None))

        framer = Zmtp(MAX_FRAME_BYTES)
        self._channel = self._edge.attach(sock, framer, deliver, closed, self._bounds(), self._user)

    # -- carrying out -------------------------------------------------------------------------------

    def _carry_out(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Send(data):
                    if self._channel is not None:
                        self._channel.send(data)
                        self.observer.frame("out", kind_name(data), len(data))
                case Append():
                    self._append(instruction)
                case Say(said_to, said):
                    said_to.append(said, _nothing)  # core's own: no worker's credit depends on it
                case KeepApproval(question):
                    self._book.keep(question.spec, question.wanted, self._told(question, ApprovalKept))
                case SettleApproval(question, decided):
                    done = self._told(question, ApprovalSettled)
                    self._book.settle(question.spec, question.id, decided, done)
                case TellAnswered(answered, decision, failure):
                    answered(decision, failure)
                case Serve():
                    began_s = time.thread_time()
                    self._serve(instruction)
                    self._charge(began_s)
                case Credit(life, request_id, verb, count):
                    began_s = time.thread_time()
                    self._services[verb].credit(RequestKey(self._user, life, request_id), count)
                    self._charge(began_s)
                case Cancel(life, request_id, verb):
                    self._services[verb].cancel(RequestKey(self._user, life, request_id))
                case Finish(sink, outcome):
                    sink.finish(outcome)
                case Lost(sink, failure, again):
                    sink.lost(failure, again)
                case CallItem(call_sink, body):
                    call_sink.item(body)
                case CallEnd(call_sink, answer):
                    call_sink.finish(answer)
                case Used(life, busy):
                    self._jails.used(life, busy)
                case Launch(life, request):
                    self._jails.launch(life, self._user, self.actor_ref, request)
                case Kill(life, reason):
                    self._close_channel()
                    self._jails.kill(life, _FAULTLESS.get(reason, reason))
                    self.observer.jail_ended(reason)
                    self.observer.note("jail_ended", user=self._user, life=life, reason=reason)
                case Note(event, values):
                    self._note(event, values)
                case Gone():
                    self.stop()

    def _charge(self, began_s: float, frames: int = 0) -> None:
        """Have the jail's pace pay for ``frames`` and what they led to: a small one may ask for much."""
        if self._channel is not None:
            self._channel.ack(frames, time.thread_time() - began_s)

    def _told(
        self, question: Question, kind: type[ApprovalKept | ApprovalSettled]
    ) -> Callable[[Failure | None], None]:
        me, approval = self.actor_ref, question.id
        return lambda failure: void(tell(me, kind(approval, failure)))

    def _serve(self, serve: Serve) -> None:
        reply = _Reply(self.actor_ref, serve.life, serve.id)
        service = self._services.get(serve.verb)
        if service is None:
            reply.fail("unavailable", f"nobody serves {serve.verb} on this server yet")
        else:
            service.serve(
                VerbRequest(
                    serve.spec.handle,
                    serve.life,
                    "agent",
                    serve.spec,
                    serve.id,
                    serve.verb,
                    serve.body,
                    reply,
                )
            )
        for answer in reply.end_of_call():
            self._carry_out(self._decide(answer))

    def _append(self, append: Append) -> None:
        """Put an event into the log; an acceptance within the call needs no message to oneself."""
        me, thread, here = self.actor_ref, threading.get_ident(), 0
        inside = True

        def accepted() -> None:
            nonlocal here
            if inside and threading.get_ident() == thread:
                here += 1
            else:
                tell(me, Accepted(append.life, append.turn, 1))

        append.sink.append(append.item, accepted)
        inside = False
        if here:
            self._carry_out(self._state.accepted(append.life, append.turn, here))

    def _note(self, event: str, values: dict[str, Any]) -> None:
        if event == "jail_ready":
            self.observer.jail_started(values["start_s"])
        elif event == "peer_faulted":
            self.observer.peer_faulted(values["reason"])
            self.observer.warn(event, user=self._user, **values)
            return
        self.observer.note(event, user=self._user, **values)

    def _close_channel(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _arm(self) -> None:
        """Have a tick at the next deadline; one that turns out early just arms again."""
        due = self._state.next_deadline_s()
        if due is not None and (self._armed_s is None or due < self._armed_s):
            self._armed_s = due
            me = self.actor_ref
            delay_s = max(0.0, due - time.monotonic())
            self._edge.call_later(delay_s, lambda: void(tell(me, Tick(due))))


def _nothing() -> None:
    """Nobody waits for that event to be accepted."""
