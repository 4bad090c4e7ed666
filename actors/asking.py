"""What a session's log says of questions to a person. Core says it; a worker cannot."""

from typing import Annotated, Literal

from msgspec import Meta

from jail.wire.schema import Body

SHOWN_CHARS = 16_384
"""How much of what is asked is shown and kept; ``cut`` says that there is more."""

Resolution = Literal["allowed", "refused", "expired", "ended"]
"""``expired``: nobody answered in time. ``ended``: the turn did, or core. Both are refusals."""

Kind = Literal["tool", "verb"]


class ApprovalWanted(Body, frozen=True, tag="approval_wanted"):
    """A person is asked. ``step`` is a tool's, 0 for a verb; ``expires_s`` is Unix time."""

    approval: str
    kind: Kind
    name: str
    arguments: Annotated[str, Meta(max_length=SHOWN_CHARS)]
    expires_s: int
    step: int = 0
    cut: bool = False


class ApprovalResolved(Body, frozen=True, tag="approval_resolved"):
    """The question is none any more."""

    approval: str
    outcome: Resolution
