"""How long to wait before a chat is tried again. Pure: numbers in, a pause out."""

from collections.abc import Callable
from typing import NamedTuple


class Retries(NamedTuple):
    """What may be tried again, and how slowly.

    ``most`` tries follow the first; the n-th pause (from 0) is drawn from 0 to ``base_s`` times 2 to
    the n, at most ``cap_s`` (AWS Architecture Blog, "Exponential Backoff And Jitter", full jitter).
    """

    most: int
    base_s: float
    cap_s: float

    def pause_s(self, tried: int, retry_after_s: int | None, draw: Callable[[], float]) -> float | None:
        """The pause before the next try, None where there is none.

        Args:
            tried: how often it was tried, 1 or more.
            retry_after_s: what the other end asked for: a pause below it would only be refused again,
                and one longer than ``cap_s`` is not worth a person's wait.
            draw: a random number in [0, 1).
        """
        if tried > self.most:
            return None
        jitter_s = draw() * min(self.cap_s, self.base_s * 2.0 ** (tried - 1))
        if retry_after_s is None:
            return jitter_s
        if retry_after_s > self.cap_s:
            return None
        return min(retry_after_s + jitter_s, self.cap_s)
