"""Who is served next, how much, and how fast: the arithmetic of sharing, without a clock or a thread.

:class:`Shares` is deficit round robin (Shreedhar and Varghese, SIGCOMM 1995) in the form that does not need
to know what a piece costs before it was served: whoever has something is served while their allowance is
positive, and pays what they overdrew in the rounds after. :class:`Pace` bounds one peer by itself.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)


class Shares(Generic[K]):
    """Deficit round robin among whoever waits for one service. Not thread-safe.

    Args:
        quantum: what each is given a round, in the caller's unit of cost.

    Of any two that wait all the time, neither is served more than ``quantum`` and the cost of one piece ahead
    of the other. Nobody waits for more than ``quantum`` and one piece of each other, and once more for each
    ``quantum`` that they overdrew themselves.
    """

    def __init__(self, quantum: int) -> None:
        if quantum < 1:
            raise ValueError("a share is at least 1")
        self._quantum = quantum
        self._waiting: OrderedDict[K, int] = OrderedDict()  # the balance of each, in the order of their turns
        self._debts: dict[K, int] = {}  # of those that do not wait just now, while others do

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, key: K) -> bool:
        return key in self._waiting

    def wake(self, key: K) -> None:
        """It has something to be served; nothing happens where it waits already."""
        if key not in self._waiting:
            self._waiting[key] = self._debts.pop(key, 0)

    def next(self) -> tuple[K, int] | None:
        """Whose turn it is and what they may cost now, at least 1; None where nobody waits.

        To be answered by :meth:`served` or :meth:`drop`.
        """
        while self._waiting:
            key = next(iter(self._waiting))
            balance = self._waiting[key] + self._quantum
            self._waiting[key] = balance
            if balance > 0:
                return key, balance
            self._waiting.move_to_end(key)
        return None

    def served(self, key: K, cost: int, more: bool) -> None:
        """What it cost, and whether there is more to be served.

        Who has nothing more keeps a debt and no claim: to be idle is not to save up.
        """
        balance = self._waiting.pop(key, 0) - cost
        if more:
            self._waiting[key] = min(balance, 0)
        elif balance < 0:
            self._debts[key] = balance
        if not self._waiting:
            self._debts.clear()  # nobody was kept waiting

    def drop(self, key: K) -> None:
        """It is gone, and what it owes."""
        self._waiting.pop(key, None)
        self._debts.pop(key, None)


class PaceLimits(NamedTuple):
    """``per_s`` frames a second, ``burst`` of them at once; ``patience_s``: see :attr:`Pace.abused`."""

    per_s: float
    burst: int
    patience_s: float


class Pace:
    """A bucket of tokens for one peer, and how long it has been at its bottom. Times by the caller's clock.

    A peer that is slowed down is left to go on: only one that never lets up in ``patience_s`` abuses it.
    """

    def __init__(self, limits: PaceLimits, now_s: float) -> None:
        self._limits = limits
        self._tokens = float(limits.burst)
        self._at_s = now_s
        self._slowed_since_s: float | None = None

    def spend(self, count: int, now_s: float, enough: int = 1) -> float:
        """``count`` were served: how many seconds to serve none, until there are ``enough``."""
        limits = self._limits
        self._tokens = min(float(limits.burst), self._tokens + (now_s - self._at_s) * limits.per_s)
        self._at_s = now_s
        if self._tokens >= limits.burst / 2:
            self._slowed_since_s = None
        self._tokens -= count
        if self._tokens > 0:
            return 0.0
        if self._slowed_since_s is None:
            self._slowed_since_s = now_s
        return (min(enough, limits.burst // 4) - self._tokens) / limits.per_s

    def abused(self, now_s: float) -> bool:
        """Whether it was slowed down for ``patience_s`` and never let up meanwhile."""
        since_s = self._slowed_since_s
        return since_s is not None and now_s - since_s >= self._limits.patience_s
