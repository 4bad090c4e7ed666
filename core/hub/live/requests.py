"""What a client says on the WebSocket, and what it is answered beside the events."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from core.hub.live.events import EventId
from jail.wire.schema import Sampling

Ref = Annotated[str, Meta(max_length=64, description="comes back in the answer")]
SessionId = Annotated[
    str, Meta(min_length=1, max_length=64, description="letters, digits, dot, dash, underscore")
]
_Text = Annotated[str, Meta(min_length=1, max_length=900_000)]
_Agent = Annotated[str, Meta(min_length=1, max_length=128, description="the agent that answers")]
_Key = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=128,
        description="names this start: sent again with the same key, it starts nothing and answers the same",
    ),
]


class _Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class TurnAsked(_Asked, frozen=True):
    """The body of POST /v1/sessions/ID/turns: say something in a session."""

    text: _Text
    agent: _Agent = "assistant"
    key: _Key | None = None
    sampling: Sampling = Sampling()


class _Request(_Asked, frozen=True, tag_field="type"):
    pass


class Start(_Request, frozen=True, tag="start"):
    """Say something in a session. Answer: started; unless `watch` is false its events follow."""

    session: SessionId
    text: _Text
    ref: Ref = ""
    agent: _Agent = "assistant"
    key: _Key | None = None
    sampling: Sampling = Sampling()
    watch: bool = True


class Cancel(_Request, frozen=True, tag="cancel"):
    """End a running turn early. Answer: cancelling; its events say when it has ended."""

    turn: Annotated[str, Meta(max_length=64)]
    ref: Ref = ""


class Watch(_Request, frozen=True, tag="watch"):
    """Watch a session. Answer: watching; its events follow."""

    session: SessionId
    ref: Ref = ""
    after: (
        Annotated[
            EventId, Meta(description="the last event's id that the client has; left out: only new ones")
        ]
        | None
    ) = None


class Unwatch(_Request, frozen=True, tag="unwatch"):
    """Watch a session no longer. Answer: unwatched."""

    session: SessionId
    ref: Ref = ""


class Approve(_Request, frozen=True, tag="approve"):
    """Let what an approval_wanted asks for act. Answer: decided; refused with 409 where it is not open."""

    approval: Annotated[str, Meta(max_length=64)]
    ref: Ref = ""


class Refuse(_Request, frozen=True, tag="refuse"):
    """Do not. Answer as to approve."""

    approval: Annotated[str, Meta(max_length=64)]
    ref: Ref = ""


class Ping(_Request, frozen=True, tag="ping"):
    """Answer: pong."""

    ref: Ref = ""


AnyRequest = Start | Cancel | Watch | Unwatch | Approve | Refuse | Ping


class _Answer(msgspec.Struct, frozen=True, tag_field="type"):
    pass


class Started(_Answer, frozen=True, tag="started"):
    """A turn runs, or with a `key` known before, has run; its events are those past `after`."""

    ref: Ref
    session: str
    turn: str
    after: EventId


class Cancelling(_Answer, frozen=True, tag="cancelling"):
    """The turn was told to end."""

    ref: Ref
    turn: str


class Watching(_Answer, frozen=True, tag="watching"):
    """The session's events past `after` follow."""

    ref: Ref
    session: str
    after: EventId


class Unwatched(_Answer, frozen=True, tag="unwatched"):
    """No more events of the session; `last` is the last that was sent."""

    ref: Ref
    session: str
    last: EventId


class Decided(_Answer, frozen=True, tag="decided"):
    """The answer to an approval counts; its approval_resolved says the same to all who watch."""

    ref: Ref
    approval: str
    allowed: bool


class Pong(_Answer, frozen=True, tag="pong"):
    """The server is there."""

    ref: Ref


class Refused(_Answer, frozen=True, tag="refused"):
    """A request was refused; nothing of it was done."""

    ref: Ref
    status: Annotated[int, Meta(description="what HTTP would have answered")]
    code: str
    message: str
    retry_after_s: int | None = None
    oldest: (
        Annotated[EventId, Meta(description="with code behind or ahead: the oldest event that is kept")]
        | None
    ) = None
    last: Annotated[EventId, Meta(description="with code behind or ahead: the newest event")] | None = None


WatchEnd = Literal[
    "behind", "deleted", "slow", "stopping", "idle", "signed_out", "policy", "unavailable", "internal"
]  # fmt: skip


class WatchEnded(_Answer, frozen=True, tag="watch_ended"):
    """No more events of the session come here; watch again from `last`.

    `behind`: the log was cut past `last`, and begins at `oldest`. `deleted`: the session was. `slow`:
    the client did not read. `stopping`: the server does. `signed_out`: the user or the token is none
    any more. `unavailable`: the log cannot be read just now. `idle`, `policy`, `internal`: as the
    connection's end says.
    """

    session: str
    last: Annotated[EventId, Meta(description="the last event that was sent")]
    code: WatchEnd
    message: str
    oldest: EventId | None = None


AnyAnswer = Started | Cancelling | Watching | Unwatched | Decided | Pong | Refused | WatchEnded
