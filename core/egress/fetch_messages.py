"""What core and egress say to each other about requests of agents to servers outside.

All of it was typed and checked by core: egress never reads what a jail framed.
"""

from typing import Literal

from core.egress.message_base import LinkMessage
from jail.wire.schema import Failure, Header, HttpEnd, HttpItem

Origin = Literal["agent"]


class FetchStart(LinkMessage, frozen=True):
    """Make a request for a turn that runs. Answers: FetchItems within credit, then FetchDone or FetchFailed.

    The turn's end comes as FetchCancel; with it, what the request had of credentials is gone. ``request`` and
    ``traceparent`` are for the log: nothing of them goes outside, where the agent alone says what is sent.
    """

    user: str
    origin: Origin
    turn: str
    method: str
    url: str
    headers: tuple[Header, ...]
    body: bytes
    more: bool
    request: str = ""
    traceparent: str = ""


class FetchBody(LinkMessage, frozen=True):
    """A further piece of fetch ``fetch``'s body. Answer: FetchTaken or FetchFailed."""

    fetch: int
    data: bytes
    last: bool


class FetchCredit(LinkMessage, frozen=True):
    """``count`` more items may come on fetch ``id``."""

    count: int


class FetchCancel(LinkMessage, frozen=True):
    """Stop fetch ``id``; nothing needs to follow."""


class FetchItem(LinkMessage, frozen=True):
    """An item of fetch ``id``."""

    item: HttpItem


class FetchDone(LinkMessage, frozen=True):
    """Fetch ``id`` ended well."""

    end: HttpEnd


class FetchTaken(LinkMessage, frozen=True):
    """A piece of a body was taken; there is room for another."""


class FetchFailed(LinkMessage, frozen=True):
    """Fetch or body piece ``id`` failed; the failure says how and what to do."""

    failure: Failure


FetchQuestion = FetchStart | FetchBody | FetchCredit | FetchCancel
FetchAnswer = FetchItem | FetchDone | FetchTaken | FetchFailed
