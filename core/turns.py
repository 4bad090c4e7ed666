"""The users' actors: one each, started for its first turn, found again for the next."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from actors.approvals import Answered
from actors.base import Ref, ask, tell
from actors.calls import CallSpec
from actors.observer import Observer
from actors.service import TurnSpec
from actors.supervisor import ChildSpec, FindChild, ListChildren, Supervisor, Timers
from actors.user_messages import (
    CANCELLED,
    AnswerApproval,
    CancelCall,
    CancelTurn,
    GrantCall,
    Leave,
    StartCall,
    StartTurn,
)
from core.errors import LinkError
from jail.wire.schema import Failure

_DESCRIBE_TIMEOUT_S = 5.0
_GONE = Failure("cancelled", "the user was disabled or deleted")

StartUser = Callable[[str, str, Ref, Observer], Ref]
"""``(actor's name, user, parent, observer)`` to a started UserActor."""


@dataclass(frozen=True, slots=True)
class RunTurn:
    """Run a turn in its user's actor."""

    spec: TurnSpec


@dataclass(frozen=True, slots=True)
class StopTurn:
    """Cancel a turn of a user's; ``why`` is told to whoever reads its end."""

    user: str
    turn: str
    why: str = CANCELLED


@dataclass(frozen=True, slots=True)
class ToUser:
    """Hand a message to a user's actor, which is started if need be."""

    user: str
    message: StartCall | GrantCall | CancelCall


@dataclass(frozen=True, slots=True)
class AnswerUser:
    """Hand a person's answer to their actor; where there is none, nothing of theirs is open."""

    user: str
    answer: AnswerApproval


@dataclass(frozen=True, slots=True)
class LeaveUser:
    """Ask: let a user's actor drain and end. Answers its reference, or None."""

    user: str


@dataclass(frozen=True, slots=True)
class LeaveAll:
    """Ask: the same for all of them. Answers their references."""


class Users(Supervisor):
    """Supervises the user actors. They are temporary: the next turn starts a new one."""

    def __init__(
        self, name: str, parent: Ref | None, observer: Observer, timers: Timers, start_user: StartUser
    ) -> None:
        super().__init__(name, parent, observer, timers)
        self._start_user = start_user

    def handle(self, message: Any) -> Any:
        """What is for a user goes on to that user's actor."""
        match message:
            case RunTurn(spec):
                if spec.handle.standing.is_good():
                    self._pass_on(spec.handle.user, StartTurn(spec))
                else:  # it lost its jail, and was being judged while its user was deleted
                    spec.sink.finish(_GONE)
                return None
            case StopTurn(user, turn, why):
                if (ref := self._find(user)) is not None:
                    tell(ref, CancelTurn(turn, why))
                return None
            case ToUser(user, inner):
                # looked at here: what came before the user's end is ahead of their actor's Leave
                if isinstance(inner, StartCall) and not inner.spec.handle.standing.is_good():
                    inner.spec.sink.finish(_GONE)
                else:
                    self._pass_on(user, inner)
                return None
            case AnswerUser(user, answer):
                if (ref := self._find(user)) is None or not tell(ref, answer):
                    answer.answered(None, None)
                return None
            case LeaveUser(user):
                if (ref := self._find(user)) is not None:
                    tell(ref, Leave())
                return ref
            case LeaveAll():
                refs = [ref for _, ref in self._children_now()]
                for ref in refs:
                    tell(ref, Leave())
                return refs
        return super().handle(message)

    def _pass_on(self, user: str, message: Any) -> None:
        ref = self._find(user)
        if ref is None or not tell(ref, message):
            tell(self._start(self._spec(user)), message)

    def _find(self, user: str) -> Ref | None:
        found: Ref | None = super().handle(FindChild(_name(user)))
        return found

    def _children_now(self) -> list[tuple[str, Ref]]:
        found: list[tuple[str, Ref]] = super().handle(ListChildren())
        return found

    def _spec(self, user: str) -> ChildSpec:
        observer, start = self.observer, self._start_user
        return ChildSpec(_name(user), lambda name, parent: start(name, user, parent, observer), "temporary")


class Turns:
    """What the hub calls: starts and cancels turns without waiting. Thread-safe once connected."""

    def __init__(self) -> None:
        self._connected: Ref | None = None

    def connect(self, users: Ref) -> None:
        """Use this :class:`Users`."""
        self._connected = users

    @property
    def _users(self) -> Ref:
        if self._connected is None:
            raise LinkError("core is still starting; try again")
        return self._connected

    def start(self, spec: TurnSpec) -> None:
        """Run a turn; how it goes is read in its log."""
        tell(self._users, RunTurn(spec))

    def cancel(self, user: str, turn: str, why: str = CANCELLED) -> None:
        """End a turn early; harmless when it is over."""
        tell(self._users, StopTurn(user, turn, why))

    def answer_approval(self, user: str, approval: str, allow: bool, answered: Answered) -> None:
        """Answer a question to a user; ``answered`` is called once, on an actor's thread."""
        tell(self._users, AnswerUser(user, AnswerApproval(approval, allow, answered)))

    def call(self, spec: CallSpec) -> None:
        """Make a request of a user's jail; the answer comes to ``spec.sink``, on an actor's thread."""
        tell(self._users, ToUser(spec.handle.user, StartCall(spec)))

    def grant_call(self, spec: CallSpec, count: int) -> None:
        """Let that many more items of a call come."""
        tell(self._users, ToUser(spec.handle.user, GrantCall(spec.name, count)))

    def cancel_call(self, spec: CallSpec) -> None:
        """End a call early; harmless when it is over."""
        tell(self._users, ToUser(spec.handle.user, CancelCall(spec.name)))

    async def leave(self, user: str, timeout_s: float) -> bool:
        """Let a user's actor end; whether it did in time."""
        ref = await asyncio.to_thread(self._ask, LeaveUser(user))
        return await _gone([ref] if ref is not None else [], timeout_s)

    async def leave_all(self, timeout_s: float) -> bool:
        """Let all users' actors end; whether they did in time."""
        return await _gone(await asyncio.to_thread(self._ask, LeaveAll()), timeout_s)

    def _ask(self, message: Any) -> Any:
        return ask(self._users, message, _DESCRIBE_TIMEOUT_S)


async def _gone(refs: list[Ref], timeout_s: float) -> bool:
    try:
        async with asyncio.timeout(timeout_s):
            while any(ref.is_alive() for ref in refs):
                await asyncio.sleep(0.01)
    except TimeoutError:
        return False
    return True


def _name(user: str) -> str:
    return f"user-{user}"
