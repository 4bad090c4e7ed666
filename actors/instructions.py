"""What a user actor's state tells its shell to do; see :mod:`actors.user_state`."""

from dataclasses import dataclass
from typing import Any

from actors.approvals import Answered, Question
from actors.asking import ApprovalResolved, ApprovalWanted, Resolution
from actors.calls import CallSink
from actors.service import TurnSink, TurnSpec
from jail.wire.schema import Body, Failure, TurnEnd, TurnItem


@dataclass(frozen=True, slots=True)
class Launch:
    """Ask the spawner for a jail; ``life`` names it, ``request`` is the id of what it is first for."""

    life: int
    request: str = ""


@dataclass(frozen=True, slots=True)
class Kill:
    """End the jail now, and close its channel."""

    life: int
    reason: str


@dataclass(frozen=True, slots=True)
class Used:
    """Whether something runs in the jail has changed, or it has just become ready."""

    life: int
    busy: bool


@dataclass(frozen=True, slots=True)
class Send:
    """Send one frame to the jail."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Serve:
    """Hand a verb to the service that serves it."""

    spec: TurnSpec
    life: int
    id: int
    verb: str
    body: Any


@dataclass(frozen=True, slots=True)
class Credit:
    """Tell the service that more items may come."""

    life: int
    id: int
    verb: str
    count: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Tell the service that a request is no longer wanted."""

    life: int
    id: int
    verb: str


@dataclass(frozen=True, slots=True)
class Append:
    """Put an event into the turn's log; its acceptance comes back as ``accepted``."""

    sink: TurnSink
    life: int
    turn: str
    item: TurnItem


@dataclass(frozen=True, slots=True)
class Say:
    """Put an event of core's own into the turn's log."""

    sink: TurnSink
    item: ApprovalWanted | ApprovalResolved


@dataclass(frozen=True, slots=True)
class KeepApproval:
    """Write a question to a person down; ``approval_kept`` follows."""

    question: Question


@dataclass(frozen=True, slots=True)
class SettleApproval:
    """Write down how a question was decided; ``approval_settled`` follows."""

    question: Question
    outcome: Resolution


@dataclass(frozen=True, slots=True)
class TellAnswered:
    """Tell whoever answered a question what came of it."""

    answered: Answered
    outcome: Resolution | None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Finish:
    """Close the turn's log."""

    sink: TurnSink
    outcome: TurnEnd | Failure


@dataclass(frozen=True, slots=True)
class Lost:
    """The turn's jail is gone; with ``again`` the turn may be started anew."""

    sink: TurnSink
    failure: Failure
    again: bool


@dataclass(frozen=True, slots=True)
class CallItem:
    """Hand an item of a call's answer over."""

    sink: CallSink
    body: Body


@dataclass(frozen=True, slots=True)
class CallEnd:
    """Close a call."""

    sink: CallSink
    outcome: Body | Failure


@dataclass(frozen=True, slots=True)
class Note:
    """Something to log or count."""

    event: str
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Gone:
    """Told to end, and cold: nothing holds the actor any more."""


Instruction = (
    Launch | Kill | Used | Send | Serve | Credit | Cancel | Append | Say | KeepApproval | SettleApproval
    | TellAnswered | Finish | Lost | CallItem | CallEnd | Note | Gone
)  # fmt: skip
