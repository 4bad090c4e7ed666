"""What a user actor is told and asked."""

import socket
from dataclasses import dataclass

from actors.approvals import Answered as OnAnswered
from actors.calls import CallSpec
from actors.service import TurnSpec
from jail.wire.errors import PeerFault
from jail.wire.schema import Body, Failure


@dataclass(frozen=True, slots=True)
class StartTurn:
    """Run a turn; how it goes is read in its log."""

    spec: TurnSpec


CANCELLED = "the turn was cancelled"


@dataclass(frozen=True, slots=True)
class CancelTurn:
    """End a turn early; ``why`` is told to whoever reads its end."""

    turn: str
    why: str = CANCELLED


@dataclass(frozen=True, slots=True)
class AnswerApproval:
    """A person's answer to a question; ``answered`` is called once, from any thread."""

    approval: str
    allow: bool
    answered: OnAnswered


@dataclass(frozen=True, slots=True)
class ApprovalKept:
    """The book: a question is durable, or could not be written down."""

    approval: str
    failure: Failure | None


@dataclass(frozen=True, slots=True)
class ApprovalSettled:
    """The book: how a question was decided is durable, or could not be written down."""

    approval: str
    failure: Failure | None


@dataclass(frozen=True, slots=True)
class StartCall:
    """Make a request of the user's jail."""

    spec: CallSpec


@dataclass(frozen=True, slots=True)
class GrantCall:
    """Let ``count`` more items of a call come."""

    name: int
    count: int


@dataclass(frozen=True, slots=True)
class CancelCall:
    """End a call early."""

    name: int


@dataclass(frozen=True, slots=True)
class Leave:
    """Take nothing new, end when the running turns have."""


@dataclass(frozen=True, slots=True)
class JailStarted:
    """The spawner started a jail; ``sock`` is the connected end of its edge."""

    life: int
    sock: socket.socket


@dataclass(frozen=True, slots=True)
class JailFailed:
    """There is no jail: the spawner could not build it, or the pool has no room."""

    life: int
    failure: Failure


@dataclass(frozen=True, slots=True)
class EvictJail:
    """The pool: let a jail go, with ``wait`` as soon as nothing runs in it, else only if that is now."""

    life: int
    wait: bool


@dataclass(frozen=True, slots=True)
class JailKilled:
    """The pool: an operator ends a jail; what runs in it is not to be started anew."""

    life: int


@dataclass(frozen=True, slots=True)
class JailExited:
    """All processes of a jail were reaped; ``failure`` is for its turns, where a limit ended it."""

    life: int
    how: str
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Frames:
    """The edge: whole messages of a life, oldest first."""

    life: int
    payloads: list[bytes]


@dataclass(frozen=True, slots=True)
class Closed:
    """The edge: a life's channel ended, by a fault or an end of file."""

    life: int
    fault: PeerFault | None


@dataclass(frozen=True, slots=True)
class Accepted:
    """A log holds that many more of a turn's events."""

    life: int
    turn: str
    count: int


@dataclass(frozen=True, slots=True)
class AnsweredItem:
    """A service: an item of a request's stream."""

    life: int
    id: int
    body: Body


@dataclass(frozen=True, slots=True)
class Answered:
    """A service: a result."""

    life: int
    id: int
    body: Body


@dataclass(frozen=True, slots=True)
class AnsweredError:
    """A service: an error."""

    life: int
    id: int
    failure: Failure


@dataclass(frozen=True, slots=True)
class Tick:
    """A deadline that was armed is due; an overtaken one is stale."""

    due_s: float
