"""Bounds on what one user may have open and ask: pure, used on the loop."""

from collections import Counter
from collections.abc import Callable

from core.hub.errors import HubError


class Bucket:
    """So many requests a second, and a few more at once (a token bucket).

    Args:
        rate_per_s: how fast it fills.
        burst: how much it holds.
        now_s: a monotonic time.
    """

    def __init__(self, rate_per_s: float, burst: float, now_s: float) -> None:
        self._rate_per_s, self._burst = rate_per_s, burst
        self._left, self._at_s = burst, now_s

    def take(self, now_s: float) -> bool:
        """Whether one more may come now; counts it if so."""
        self._fill(now_s)
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def spend(self, amount: float, now_s: float) -> float:
        """Count what came in any case; how long (in seconds) until it is paid for, 0 for at once."""
        self._fill(now_s)
        self._left -= amount
        return max(0.0, -self._left / self._rate_per_s)

    def _fill(self, now_s: float) -> None:
        self._left = min(self._burst, self._left + (now_s - self._at_s) * self._rate_per_s)
        self._at_s = now_s


class Seats:
    """How many connections a user has; more are refused."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: Counter[str] = Counter()

    def take(self, user: str) -> Callable[[], None]:
        """Count one in, or raise HubError 429; what is returned counts it out, once."""
        if self._taken[user] >= self._most:
            raise HubError(
                429,
                f"{self._most} connections of yours are open already: close one",
                "too_many_connections",
                retry_after_s=5,
            )
        self._taken[user] += 1
        left = False

        def leave() -> None:
            nonlocal left
            if left:
                return
            left = True
            self._taken[user] -= 1
            if not self._taken[user]:
                del self._taken[user]

        return leave
