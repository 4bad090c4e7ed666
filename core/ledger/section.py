"""What the configuration says of usage: the day, the money, limits for everybody, and prices."""

from decimal import Decimal
from typing import Annotated

import msgspec
from msgspec import Meta

MOST = 10**15
Most = Annotated[int, Meta(ge=0, le=MOST)]

_MAX_PRICE = Decimal(10_000)
MAX_COST = Decimal(100_000)
_PRICE_PLACES = 6


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pass


class LimitsSection(_Section, frozen=True):
    """[usage.soft] and [usage.hard]: of one user in one day; left out: no limit."""

    tokens: Annotated[Most | None, Meta(description="in and out together, of chats")] = None
    requests: Annotated[Most | None, Meta(description="to model servers and by http.fetch")] = None
    bytes: Annotated[Most | None, Meta(description="both ways, of http.fetch")] = None
    cost: Annotated[Decimal | None, Meta(description='such as "2.50", in the currency of [usage]')] = None


class UsageSection(_Section, frozen=True):
    """[usage]"""

    currency: Annotated[
        str, Meta(pattern=r"^[A-Z]{3}\Z", description="of prices and of limits on cost: ISO 4217")
    ] = "USD"
    zone: Annotated[str, Meta(max_length=64, description="where a day begins and ends: an IANA name")] = "UTC"
    keep_days: Annotated[int, Meta(ge=31, le=36_500, description="usage older is deleted (in days)")] = 400
    bytes_per_token: Annotated[
        float,
        Meta(
            ge=1, le=8,
            description="what is held for a prompt before its tokens are known: 1 is never too little, "
            "more lets a user closer to a hard limit, or past it by one prompt",
        ),
    ] = 1.0  # fmt: skip
    # past soft the user is told, once a day; past hard nothing goes out
    soft: LimitsSection = LimitsSection()
    hard: LimitsSection = LimitsSection()


class PriceSection(_Section, frozen=True):
    """[providers.NAME.prices."MODEL"]: for a million tokens; the model "*" is any other."""

    input: Annotated[Decimal, Meta(description='such as "0.15"')]
    output: Annotated[Decimal, Meta(description='such as "0.60"')]


def price_fault(price: Decimal) -> str:
    """What is wrong with a price; empty where nothing is."""
    return _fault(price, _MAX_PRICE, _PRICE_PLACES)


def cost_fault(cost: Decimal) -> str:
    """What is wrong with a limit on cost; empty where nothing is."""
    return _fault(cost, MAX_COST, _PRICE_PLACES)


def _fault(value: Decimal, most: Decimal, places: int) -> str:
    if not value.is_finite() or not 0 <= value <= most:
        return f"a number from 0 to {most}"
    if value != round(value, places):
        return f"at most {places} decimals"
    return ""
