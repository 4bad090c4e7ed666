"""What the fake model server is told to answer, in either wire format."""

import re
from dataclasses import dataclass, field
from typing import Literal

Misbehaviour = Literal[
    "not_json",  # an event that is not JSON
    "wrong_shape",  # JSON of other types
    "error_event",  # an error object in mid-stream
    "stall",  # some tokens, then silence
    "cut",  # some tokens, then the end of the body, with no finish reason and no [DONE]
    "reset",  # some tokens, then the connection is gone in mid-chunk
    "endless",  # tokens for ever
    "huge_line",  # one line without an end
    "trickle",  # comment lines for ever, no event
    "gzip_bomb",  # a compressed answer of 64 MB of zeros
    "slow_headers",  # no answer at all for a long time
    "html",  # 200 with a web page
    "redirect",  # 307 to itself
    "plain_json",  # 200 with a whole completion, not streamed
    "no_done",  # a finish reason, then the end without [DONE]
    "hang_after_finish",  # a finish reason, then silence
]


@dataclass(frozen=True)
class Call:
    """A tool call to make; ``id`` or ``name`` may be None, which leaves the field out."""

    name: str | None
    arguments: str
    id: str | None = "call_fake"


@dataclass(frozen=True)
class Script:
    """What one request is answered with."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    finish: str | None = None
    rate_per_s: float = 0.0  # 0: as fast as the client takes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    error_body: str = ""
    misbehave: Misbehaviour | None = None
    raw_events: tuple[str, ...] = ()  # sent as they are, instead of all else


def tokens(text: str) -> list[str]:
    """A text in the pieces that it is sent in."""
    return re.findall(r"\S+\s*|\s+", text)
