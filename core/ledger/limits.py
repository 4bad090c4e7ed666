"""Limits, prices and amounts as the ledger computes with them: whole numbers alone."""

from collections.abc import Mapping
from decimal import Decimal
from typing import NamedTuple

from core.ledger.metering import DIMENSIONS, Amount, Dimension, Level
from core.ledger.section import LimitsSection, PriceSection

PICO = 10**12
"""Money is counted in 10^-12 of the currency: a price of six decimals for a million tokens is whole then."""
_PICO_A_TOKEN = PICO // 10**6
ANY_MODEL = "*"


class Sums(NamedTuple):
    """So much of each dimension; ``cost`` in pico units."""

    tokens: int = 0
    requests: int = 0
    bytes: int = 0
    cost: int = 0

    def plus(self, other: "Sums") -> "Sums":
        """Both together."""
        return Sums(*(a + b for a, b in zip(self, other, strict=True)))


class Limits(NamedTuple):
    """The most of each in a day; None: no limit. ``cost`` in pico units."""

    tokens: int | None = None
    requests: int | None = None
    bytes: int | None = None
    cost: int | None = None

    @classmethod
    def of(cls, section: LimitsSection) -> "Limits":
        """The configuration's."""
        cost = None if section.cost is None else to_pico(section.cost)
        return cls(section.tokens, section.requests, section.bytes, cost)

    def overridden(self, changes: Mapping[Dimension, int | None]) -> "Limits":
        """With a user's own in place of these."""
        return Limits(*(changes.get(name, getattr(self, name)) for name in DIMENSIONS))


Overrides = Mapping[Level, Mapping[Dimension, int | None]]
"""A user's own limits: what is in there counts instead of the configuration's, None is no limit."""


class Price(NamedTuple):
    """For one token, in pico units."""

    input: int
    output: int

    def of(self, amount: Amount) -> int:
        """What an amount costs."""
        return amount.input_tokens * self.input + amount.output_tokens * self.output


Prices = Mapping[str, Mapping[str, Price]]
"""By provider and model."""


def price_of(sections: Mapping[str, PriceSection]) -> dict[str, Price]:
    """A provider's prices by model."""
    return {
        model: Price(int(at.input * _PICO_A_TOKEN), int(at.output * _PICO_A_TOKEN))
        for model, at in sections.items()
    }


def find_price(prices: Prices, provider: str, model: str) -> Price | None:
    """The model's own, else the provider's for any other, else None: it is not counted in money."""
    own = prices.get(provider, {})
    return own.get(model) or own.get(ANY_MODEL)


def to_pico(amount: Decimal) -> int:
    """Money in pico units, rounded down."""
    return int(amount * PICO)


def to_money(pico: int) -> str:
    """Pico units as a decimal number, without more places than it needs."""
    whole, rest = divmod(pico, PICO)
    places = f"{rest:012d}".rstrip("0")
    return f"{whole}.{places:0<2}"


def sums_of(amount: Amount, kind: str, price: Price | None) -> Sums:
    """What an amount is of each dimension: bytes are limited for brokered requests alone."""
    return Sums(
        amount.input_tokens + amount.output_tokens,
        amount.requests,
        amount.bytes if kind == "fetch" else 0,
        price.of(amount) if price is not None else 0,
    )
