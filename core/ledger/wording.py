"""What a user is told of a limit: how much it is, how much is left of it, and when it begins anew."""

import math

from core.ledger.days import Days
from core.ledger.limits import to_money
from core.ledger.metering import Dimension
from jail.wire.schema import Failure

_A_DAY_S = 86_400
_UNITS: dict[Dimension, str] = {"tokens": "tokens", "requests": "requests", "bytes": "bytes"}


class Wording:
    """Pure.

    Args:
        days: the operator's.
        currency: of money.
    """

    def __init__(self, days: Days, currency: str) -> None:
        self._days = days
        self._currency = currency

    def soft(self, dimension: Dimension, most: int, used: int, now_s: float) -> str:
        """Past a soft limit; the request goes on."""
        return (
            f"you have used {self._much(dimension, used)} today, past your soft limit of"
            f" {self._much(dimension, most)}; the day ends at {self._end(now_s)}"
        )

    def hard(
        self, dimension: Dimension, most: int, used: int, held: int, needed: int, now_s: float
    ) -> Failure:
        """At a hard limit; ``needed`` is the least that this request would have taken."""
        running = f", and {self._much(dimension, held)} are held for what runs" if held else ""
        if needed > most:
            what = (
                f"this request alone may take {self._much(dimension, needed)}, more than your limit of"
                f" {self._much(dimension, most)} a day: begin a new session, or ask the operator for more"
            )
        else:
            what = (
                f"your limit of {self._much(dimension, most)} a day does not leave enough for this request"
                f" ({self._much(dimension, used)} used{running}; it may take {self._much(dimension, needed)})"
            )
        ends_in_s = self._days.resets_at_s(now_s) - now_s
        text = f"{what}. The limit begins anew at {self._end(now_s)}."
        return Failure("quota", text, min(max(math.ceil(ends_in_s), 1), _A_DAY_S))

    def _much(self, dimension: Dimension, value: int) -> str:
        if dimension == "cost":
            return f"{to_money(value)} {self._currency}"
        return f"{value:,} {_UNITS[dimension]}"

    def _end(self, now_s: float) -> str:
        return self._days.told(self._days.resets_at_s(now_s))
