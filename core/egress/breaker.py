"""Whether a provider is left alone for a while. Pure: the caller says what happened, and when.

Closed, chats go through. After so many failures in a row it opens: chats are refused at once,
which spares them the wait and the provider the load. After a while it is half open: one chat may
try, and its end closes or opens it again (M. Nygard, Release It!, "Circuit Breaker").
"""

from typing import Literal

State = Literal["closed", "open", "half_open"]


class Breaker:
    """One provider's. Times are monotonic, in seconds.

    Every admitted chat ends in exactly one of :meth:`succeeded`, :meth:`failed`, :meth:`abandoned`.

    Args:
        failures: so many in a row open it.
        open_s: how long it then stays open.
    """

    def __init__(self, failures: int, open_s: float) -> None:
        self._limit = failures
        self._open_s = open_s
        self._failures = 0
        self._opened_at_s: float | None = None
        self._trying = False

    @property
    def failures(self) -> int:
        """How many failures in a row there were."""
        return self._failures

    def state(self, now_s: float) -> State:
        """As it is now."""
        if self._opened_at_s is None:
            return "closed"
        return "half_open" if now_s >= self._opened_at_s + self._open_s else "open"

    def admit(self, now_s: float) -> bool:
        """Whether a chat may go through; in the half-open state one at a time may."""
        state = self.state(now_s)
        if state == "closed":
            return True
        if state == "open" or self._trying:
            return False
        self._trying = True
        return True

    def wait_s(self, now_s: float) -> float:
        """How long until another chat may try; 0 when one may now or one is trying."""
        return 0.0 if self._opened_at_s is None else max(0.0, self._opened_at_s + self._open_s - now_s)

    def succeeded(self) -> bool:
        """A chat went well; returns whether that closed it."""
        closed = self._opened_at_s is not None
        self._failures, self._opened_at_s, self._trying = 0, None, False
        return closed

    def failed(self, now_s: float) -> bool:
        """A chat failed by the provider's fault; returns whether that opened it."""
        self._failures += 1
        if self._opened_at_s is not None:
            if not self._trying:
                return False  # it began before the breaker opened, and tells nothing new
            self._trying = False
        elif self._failures < self._limit:
            return False
        self._opened_at_s = now_s
        return True

    def abandoned(self) -> None:
        """A chat ended without a verdict on the provider: cancelled, or refused for its content."""
        self._trying = False
