"""What whoever sends a request outside has to do with the ledger: reserve before, settle after.

    least, most = Amount(1, bytes=4_096), Amount(1, bytes=LIMIT)
    grant = await meter.reserve(Claim("alice", "fetch", "http", "", least, most))
    try:
        ...  # move at most grant.amount.bytes
    finally:
        meter.settle(grant.id, Amount(1, bytes=moved))

What is reserved and never settled (a crash in between) is settled as the whole of what was granted.
"""

from typing import Literal, NamedTuple, Protocol

from core.errors import CoreError
from jail.wire.schema import Failure

Kind = Literal["chat", "fetch"]
Dimension = Literal["tokens", "requests", "bytes", "cost"]
Level = Literal["soft", "hard"]
DIMENSIONS: tuple[Dimension, ...] = ("tokens", "requests", "bytes", "cost")


class Amount(NamedTuple):
    """So much of each; all are counts, ``bytes`` both ways together."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    bytes: int = 0


class Claim(NamedTuple):
    """What a request may use: between ``least``, without which it makes no sense, and ``most``.

    Only output tokens and bytes are cut to what is left. ``kind`` is ``chat`` for a model, with the
    provider's name and the model's, ``fetch`` for brokered HTTP (provider ``http``, model empty).
    """

    user: str
    kind: Kind
    provider: str
    model: str
    least: Amount
    most: Amount


class Met(NamedTuple):
    """A limit that was reached; ``text`` says so to its user, in one sentence."""

    level: Level
    dimension: Dimension
    text: str


class Grant(NamedTuple):
    """A reservation, which is on disk.

    ``amount`` is what may be used. ``capped``: a hard limit on tokens or cost applies to this user, so
    that whoever answers has to be told to keep within it. ``met``: soft limits that this request
    crossed, each told once a day.
    """

    id: int
    amount: Amount
    capped: bool
    met: tuple[Met, ...]


class LimitReached(CoreError):
    """A hard limit is reached. ``failure`` is for the user: code ``quota``, with when it resets.

    ``first``: the first time for this user today; the ledger has audited it then.
    """

    def __init__(self, dimension: Dimension, failure: Failure, first: bool = False) -> None:
        super().__init__(failure.message)
        self.dimension = dimension
        self.failure = failure
        self.first = first


class LedgerUnavailable(CoreError):
    """The ledger's disk failed or it is overloaded: nothing goes out that it cannot count."""


class Meter(Protocol):
    """The ledger, as the event loop of egress sees it."""

    async def reserve(self, claim: Claim) -> Grant:
        """Reserve; durable on return. Raises LimitReached, LedgerUnavailable.

        Cancelled while it waits, what it may have reserved is given back.
        """
        ...

    def settle(self, grant_id: int, used: Amount, estimated: bool = False) -> None:
        """Say what was used in truth, once; never blocks, never raises.

        ``estimated``: nobody told, and it was counted here.
        """
        ...
