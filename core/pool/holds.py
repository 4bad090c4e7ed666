"""Whose jails die at once, time after time: held for a growing while instead of started in a loop. Pure."""

from collections import OrderedDict
from dataclasses import dataclass

_DEATHS = 3
"""At once and in a row, before a user is held."""
_FIRST_S = 5.0
_MOST_S = 300.0
_REMEMBERED_S = 3_600.0
"""After the last death: then they are forgotten, and the delay begins anew."""
_MAX_KNOWN = 10_000
_REASON_CHARS = 200


@dataclass(slots=True)
class Hold:
    """A user's deaths in a row; ``until_s`` is the caller's clock, in the past where none is held."""

    user: str
    deaths: int
    reason: str
    last_s: float
    until_s: float


class Holds:
    """The deaths of all users' jails; bounded, the longest ago forgotten first."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Hold] = OrderedDict()

    def died(self, user: str, reason: str, now_s: float) -> None:
        """A jail died as soon as it was there; ``reason`` is for people."""
        known = self._known.pop(user, None)
        deaths = 1 if known is None or now_s > known.last_s + _REMEMBERED_S else known.deaths + 1
        delay_s = min(_FIRST_S * 2.0 ** min(deaths - _DEATHS, 20), _MOST_S) if deaths >= _DEATHS else 0.0
        self._known[user] = Hold(user, deaths, reason[:_REASON_CHARS], now_s, now_s + delay_s)
        if len(self._known) > _MAX_KNOWN:
            self._known.popitem(last=False)

    def lived(self, user: str) -> None:
        """A jail did what it was started for."""
        self._known.pop(user, None)

    def of(self, user: str, now_s: float) -> Hold | None:
        """What holds a user now."""
        known = self._known.get(user)
        return known if known is not None and now_s < known.until_s else None

    def release(self, user: str, now_s: float) -> bool:
        """Forget a user's deaths; whether they were held."""
        held = self.of(user, now_s) is not None
        self._known.pop(user, None)
        return held

    def all(self, now_s: float) -> list[Hold]:
        """Who is held now, the longest ago first."""
        return [hold for hold in self._known.values() if now_s < hold.until_s]
