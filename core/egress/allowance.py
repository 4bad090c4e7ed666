"""What one fetch may move, of what the ledger lets its user: reserved in portions, settled at the end.

A fetch may be of a kilobyte or of hundreds of megabytes. Reserving the most it could be would keep a user's
other fetches from what is left of their day.
"""

from collections.abc import Callable
from typing import NamedTuple

from core.egress.fetch_stream import FetchError
from core.ledger.metering import Amount, Claim, LedgerUnavailable, LimitReached, Met, Meter
from jail.wire.schema import Failure

_LEAST_BYTES = 4_096
_FIRST_BYTES = 1 << 20
_PORTION_BYTES = 8 << 20
_RETRY_AFTER_S = 2


class _Portion(NamedTuple):
    grant_id: int
    requests: int
    bytes: int


class Allowance:
    """One fetch's. ``told`` is called with each limit that is met on the way."""

    def __init__(self, meter: Meter, user: str, told: Callable[[Met], None]) -> None:
        self._meter, self._user, self._told = meter, user, told
        self._portions: list[_Portion] = []
        self._room = 0
        self.moved = 0
        """Bytes, both ways."""

    async def begin(self) -> None:
        """Reserve a request. Raises FetchError where the user's day does not allow one."""
        await self._reserve(1, _LEAST_BYTES, _FIRST_BYTES)

    async def take(self, count: int) -> None:
        """``count`` bytes were or are about to be moved. Raises FetchError where that is too much."""
        self.moved += count
        self._room -= count
        if self._room < 0:
            await self._reserve(0, -self._room, max(-self._room, _PORTION_BYTES))

    def settle(self) -> None:
        """Tell the ledger what it came to; nothing more may be taken."""
        left = self.moved
        for at, portion in enumerate(self._portions):
            # what came beyond the last portion was moved all the same
            used = left if at == len(self._portions) - 1 else min(left, portion.bytes)
            left -= used
            # a request that was refused before anything was sent is none
            requests = portion.requests if self.moved else 0
            self._meter.settle(portion.grant_id, Amount(requests, bytes=used))
        self._portions.clear()

    async def _reserve(self, requests: int, least: int, most: int) -> None:
        claim = Claim(
            self._user, "fetch", "http", "", Amount(requests, bytes=least), Amount(requests, bytes=most)
        )
        try:
            grant = await self._meter.reserve(claim)
        except LimitReached as reached:
            self._told(Met("hard", reached.dimension, reached.failure.message))
            raise FetchError.of(reached.failure) from None
        except LedgerUnavailable as error:
            raise FetchError.of(Failure("unavailable", str(error)[:2_000], _RETRY_AFTER_S)) from None
        self._portions.append(_Portion(grant.id, requests, grant.amount.bytes))
        self._room += grant.amount.bytes
        for met in grant.met:
            self._told(met)
