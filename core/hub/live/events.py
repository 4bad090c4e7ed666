"""A session's events as clients see them: one JSON object each, the same however they come.

``type`` says which; more fields and more types may come, and clients skip what they don't know.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from actors.asking import ApprovalResolved, ApprovalWanted, Kind, Resolution
from core.sessions.events import Accepted, Ended, Failed, Finish, Resumed, SessionEvent, Used
from jail.wire.schema import (
    Delta,
    ErrorCode,
    Notice,
    PictureShown,
    PictureType,
    ToolEnded,
    ToolProgress,
    ToolStarted,
)

EventId = Annotated[
    int, Meta(ge=0, le=2**53, description="grows within the session, and is never used again")
]
_Session = Annotated[str, Meta(description="the session's id")]
_Turn = Annotated[str, Meta(description="the turn's id")]
_Time = Annotated[float, Meta(description="Unix time (in seconds)")]
_Step = Annotated[int, Meta(ge=1, description="the tool call within its turn, from 1 up")]


class Event(msgspec.Struct, frozen=True, tag_field="type"):
    """What all of them have."""

    session: _Session
    turn: _Turn
    id: EventId
    time: _Time


class AcceptedEvent(Event, frozen=True, tag="accepted"):
    """A turn began."""

    agent: Annotated[str, Meta(description="the agent's name")]
    seq: Annotated[int, Meta(ge=0, description="the message that it answers, among the session's")]
    text: Annotated[str, Meta(description="that message's text, or how it begins")]
    cut: Annotated[bool, Meta(description="whether `text` is only the beginning")]
    request: Annotated[str, Meta(description="the id of what asked for it, as the server's log has it")] = ""


class DeltaEvent(Event, frozen=True, tag="delta"):
    """A piece of the answer, or of the model's reasoning; one of the two is empty."""

    text: str
    reasoning: str


class ToolCallEvent(Event, frozen=True, tag="tool_call"):
    """A tool is to act: at once, or once its user has allowed it."""

    step: _Step
    name: str
    arguments: Annotated[str, Meta(description="JSON text, as the model wrote it")]


class ToolProgressEvent(Event, frozen=True, tag="tool_progress"):
    """Output of a running tool, as it comes."""

    step: _Step
    text: str


class ToolResultEvent(Event, frozen=True, tag="tool_result"):
    """A tool has ended; `text` is what the model is given."""

    step: _Step
    ok: bool
    text: str


class PictureEvent(Event, frozen=True, tag="picture"):
    """A picture of the home's is put before the user; `GET /v1/files/content` has it, as it is by then."""

    step: _Step
    path: Annotated[str, Meta(description="its file, relative to the home")]
    media_type: PictureType
    size: Annotated[int, Meta(ge=1, description="what it had when it was shown (in bytes)")]
    caption: Annotated[str, Meta(description="a line of text; empty for none")]


class ApprovalWantedEvent(Event, frozen=True, tag="approval_wanted"):
    """The user is asked whether a tool or a verb may act; the turn waits, and its time stands still."""

    approval: Annotated[str, Meta(description="its id, for the answer")]
    kind: Kind
    name: Annotated[str, Meta(description="the tool's or the verb's")]
    arguments: Annotated[str, Meta(description="JSON text; only its beginning where `cut`")]
    cut: bool
    step: Annotated[int, Meta(ge=0, description="the tool call within its turn; 0 for a verb")]
    expires_s: Annotated[int, Meta(description="Unix time, past which it counts as a refusal")]


class ApprovalResolvedEvent(Event, frozen=True, tag="approval_resolved"):
    """It is no longer asked: `expired` and `ended` (its turn did) are refusals too."""

    approval: str
    outcome: Resolution


class NoticeEvent(Event, frozen=True, tag="notice"):
    """Something the person should know."""

    text: str


class ResumedEvent(Event, frozen=True, tag="resumed"):
    """The turn goes on after its jail or the server was gone: what it said past event `after` is said
    anew, under other steps' numbers; forget that."""

    after: Annotated[EventId, Meta(description="the turn's last event that still counts")]


class UsageEvent(Event, frozen=True, tag="usage"):
    """The tokens of the whole turn, as its providers counted them."""

    input_tokens: Annotated[int, Meta(ge=0)]
    output_tokens: Annotated[int, Meta(ge=0)]


class DoneEvent(Event, frozen=True, tag="done"):
    """The turn's end: by itself, or at a limit. Its last event."""

    finish: Finish


class ErrorEvent(Event, frozen=True, tag="error"):
    """The turn's end: it failed, or was cancelled. Its last event."""

    code: ErrorCode
    message: str
    retry_after_s: int | None


AnyEvent = (
    AcceptedEvent | DeltaEvent | ToolCallEvent | ToolProgressEvent | ToolResultEvent | PictureEvent
    | ApprovalWantedEvent | ApprovalResolvedEvent | NoticeEvent | ResumedEvent | UsageEvent | DoneEvent
    | ErrorEvent
)  # fmt: skip

_encode = msgspec.json.Encoder().encode


def line_of(session: str, event: SessionEvent) -> bytes:
    """An event as JSON; made once, whoever asks first."""
    if event.line is None:
        event.line = _encode(shown(session, event))
    return event.line


def shown(session: str, event: SessionEvent) -> AnyEvent:
    """An event as clients see it."""
    head: tuple[str, str, int, float] = (session, event.turn, event.id, event.time_ms / 1_000)
    item: Any = event.item
    match item:
        case Delta():
            return DeltaEvent(*head, item.text, item.reasoning)
        case ToolProgress():
            return ToolProgressEvent(*head, item.step, item.text)
        case ToolStarted():
            return ToolCallEvent(*head, item.step, item.name, item.arguments)
        case ToolEnded():
            return ToolResultEvent(*head, item.step, item.ok, item.text)
        case PictureShown():
            return PictureEvent(*head, item.step, item.path, item.media_type, item.size, item.caption)
        case ApprovalWanted():
            return ApprovalWantedEvent(
                *head,
                item.approval,
                item.kind,
                item.name,
                item.arguments,
                item.cut,
                item.step,
                item.expires_s,
            )
        case ApprovalResolved():
            return ApprovalResolvedEvent(*head, item.approval, item.outcome)
        case Notice():
            return NoticeEvent(*head, item.text)
        case Accepted():
            return AcceptedEvent(*head, item.agent, item.seq, item.text, item.cut, item.request)
        case Resumed(after):
            return ResumedEvent(*head, after)
        case Used(usage):
            return UsageEvent(*head, usage.input_tokens, usage.output_tokens)
        case Ended(finish):
            return DoneEvent(*head, finish)
        case Failed():
            return ErrorEvent(*head, item.code, item.message, item.retry_after_s)
    raise TypeError(f"no form for {type(item).__name__}")
