"""The ledger's decisions: what may still be used, what was. Over the store; no thread, no clock.

The rule that nothing gets past a hard limit: what was used, what is held for others, and what is
granted now are together at most the limit, looked at and written in one transaction.
"""

from collections.abc import Mapping
from typing import NamedTuple

from core.ledger.days import Days
from core.ledger.limits import Limits, Price, Prices, Sums, find_price, sums_of
from core.ledger.metering import (
    DIMENSIONS,
    Amount,
    Claim,
    Dimension,
    Grant,
    Level,
    LimitReached,
    Met,
)
from core.ledger.store import Held, LedgerStore, Place, UsageRow
from core.ledger.wording import Wording

MAX_MODELS = 64
"""Rows of one user in one day: the names of models are the user's own words, and cost us disk."""
OTHER_MODEL = "(other)"
_MAX_NAME = 128
_MOST_OF_A_REQUEST = 10**10
"""Tokens or bytes that one request may be said to have used: an upstream that says more is not believed."""


class Terms(NamedTuple):
    """What the configuration says."""

    days: Days
    currency: str
    keep_days: int
    soft: Limits
    hard: Limits
    prices: Prices


class Standing(NamedTuple):
    """How a user stands today; ``own`` are the limits that are theirs and not the configuration's."""

    day: str
    resets_at_s: float
    used: Sums
    held: Sums
    soft: Limits
    hard: Limits
    own: Mapping[Level, Mapping[Dimension, int | None]]


class Book:
    """Used within one transaction of the store's at a time; ``now_s`` is Unix time.

    Raises sqlite3.Error where the disk fails; then call :meth:`reload`.
    """

    def __init__(self, store: LedgerStore, terms: Terms) -> None:
        self._store = store
        self._terms = terms
        self._wording = Wording(terms.days, terms.currency)
        self._own = store.overrides()

    # -- requests -----------------------------------------------------------------------------------

    def is_limited(self, user: str) -> bool:
        """Whether any hard limit applies: then a reservation has to be on disk before the request goes."""
        return any(most is not None for most in self._limits(user, "hard"))

    def reserve(self, claim: Claim, now_s: float) -> Grant:
        """Hold what a request may use. Raises LimitReached; ``first`` where it is the day's first."""
        user, day = claim.user, self._terms.days.day(now_s)
        used, held = self._store.used(user, day), self._store.held(user, day)
        price = find_price(self._terms.prices, claim.provider, claim.model)
        hard = self._limits(user, "hard")
        least = sums_of(claim.least, claim.kind, price)
        for dimension in DIMENSIONS:
            most = getattr(hard, dimension)
            taken: int = getattr(used, dimension) + getattr(held, dimension)
            needed: int = getattr(least, dimension)
            if most is not None and needed and taken + needed > most:
                first = self._store.tell(user, day, "hard", dimension)
                failure = self._wording.hard(
                    dimension, most, getattr(used, dimension), getattr(held, dimension), needed, now_s
                )
                raise LimitReached(dimension, failure, first)
        amount = _granted(claim, hard, used.plus(held), price)
        place = self._place(claim, day)
        grant_id = self._store.hold(place, amount, sums_of(amount, claim.kind, price).cost, price)
        by_cost = hard.cost is not None and price is not None
        capped = claim.kind == "chat" and (hard.tokens is not None or by_cost)
        return Grant(grant_id, amount, capped, self._soft(user, day, used, now_s))

    def settle(self, grant_id: int, used: Amount, estimated: bool) -> None:
        """What was held becomes what was used; nothing happens for what is not held (any more)."""
        held = self._store.release(grant_id)
        if held is not None:
            self._add(held, used, estimated)

    def recover(self) -> int:
        """Settle what a crash left held as used in full: it may have been. Returns how many there were."""
        left = self._store.all_held()
        for held in left:
            self._store.release(held.id)
            self._add(held, held.amount, True)
        return len(left)

    # -- users --------------------------------------------------------------------------------------

    def standing(self, user: str, now_s: float) -> Standing:
        """How a user stands today."""
        day = self._terms.days.day(now_s)
        return Standing(
            day,
            self._terms.days.resets_at_s(now_s),
            self._store.used(user, day),
            self._store.held(user, day),
            self._limits(user, "soft"),
            self._limits(user, "hard"),
            self._own.get(user, {}),
        )

    def rows(self, user: str, since: str, until: str, most: int, now_s: float) -> list[UsageRow]:
        """What was used; an empty day is today, an empty user is everybody."""
        today = self._terms.days.day(now_s)
        return self._store.rows(user, since or today, until or today, most)

    def set_limits(self, user: str, changes: Mapping[Level, Mapping[Dimension, int | str | None]]) -> None:
        """Give a user limits of their own: a number, None for none, ``default`` for the configuration's."""
        for level, by_dimension in changes.items():
            for dimension, most in by_dimension.items():
                if isinstance(most, str):
                    self._store.reset(user, level, dimension)
                else:
                    self._store.override(user, level, dimension, most)
        self.reload()

    def forget(self, user: str) -> None:
        """A user is gone; the next of that name begins anew."""
        self._store.forget(user)
        self.reload()

    def purge(self, now_s: float) -> None:
        """Forget days older than are kept."""
        self._store.purge(self._terms.days.before(now_s, self._terms.keep_days))

    def use(self, terms: Terms) -> None:
        """Other limits and prices, from the next request on."""
        self._terms = terms
        self._wording = Wording(terms.days, terms.currency)

    def reload(self) -> None:
        """Read again what is remembered of the store."""
        self._own = self._store.overrides()

    # -- small change -------------------------------------------------------------------------------

    def _limits(self, user: str, level: Level) -> Limits:
        base = self._terms.hard if level == "hard" else self._terms.soft
        own = self._own.get(user, {}).get(level)
        return base.overridden(own) if own else base

    def _soft(self, user: str, day: str, used: Sums, now_s: float) -> tuple[Met, ...]:
        soft = self._limits(user, "soft")
        met = []
        for dimension in DIMENSIONS:
            most = getattr(soft, dimension)
            so_far: int = getattr(used, dimension)
            if most is not None and so_far >= most and self._store.tell(user, day, "soft", dimension):
                met.append(Met("soft", dimension, self._wording.soft(dimension, most, so_far, now_s)))
        return tuple(met)

    def _place(self, claim: Claim, day: str) -> Place:
        place = Place(claim.user, day, claim.kind, claim.provider[:_MAX_NAME], claim.model[:_MAX_NAME])
        return place if self._store.knows(place, MAX_MODELS) else place._replace(model=OTHER_MODEL)

    def _add(self, held: Held, used: Amount, estimated: bool) -> None:
        believed = Amount(*(min(max(value, 0), _MOST_OF_A_REQUEST) for value in used))
        cost = held.price.of(believed) if held.price is not None else 0
        unpriced = believed.requests if held.place.kind == "chat" and held.price is None else 0
        self._store.add(held.place, believed, cost, believed.requests if estimated else 0, unpriced)


def _granted(claim: Claim, hard: Limits, taken: Sums, price: Price | None) -> Amount:
    """The most that is left, of what may be cut: the least was looked at before."""
    output, moved = claim.most.output_tokens, claim.most.bytes
    if hard.tokens is not None:
        output = min(output, hard.tokens - taken.tokens - claim.most.input_tokens)
    if hard.cost is not None and price is not None and price.output:
        left = hard.cost - taken.cost - price.input * claim.most.input_tokens
        output = min(output, left // price.output)
    if hard.bytes is not None and claim.kind == "fetch":
        moved = min(moved, hard.bytes - taken.bytes)
    return claim.most._replace(output_tokens=output, bytes=moved)
