"""When to start core or egress again: a pure policy with full-jitter backoff and an end."""

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Final

_BASE_S: Final = 0.1
_CEILING_S: Final = 10.0


@dataclass(slots=True)
class RestartPolicy:
    """``max_failures`` within ``window_s`` seconds is the end; the service manager decides then.

    Args:
        uniform: gives a float between two; a test passes its own.
    """

    max_failures: int = 5
    window_s: float = 60.0
    uniform: random.Random = field(default_factory=random.SystemRandom)
    _failures: deque[float] = field(default_factory=deque)

    def failed(self, now_s: float) -> float | None:
        """Count a failure at monotonic ``now_s``; the delay before the next start, or None: give up.

        The first restart comes at once, so that one crash is hardly seen.
        """
        self._failures.append(now_s)
        while self._failures[0] <= now_s - self.window_s:
            self._failures.popleft()
        count = len(self._failures)
        if count >= self.max_failures:
            return None
        if count == 1:
            return 0.0
        return self.uniform.uniform(0.0, min(_CEILING_S, _BASE_S * 2.0**count))
