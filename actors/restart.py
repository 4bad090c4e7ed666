"""When a supervisor starts a child again: pure, with the time and the dice passed in."""

import random
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import Literal

Lifetime = Literal["permanent", "transient", "temporary"]
"""permanent: always restarted; transient: only after a failure; temporary: never."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Start the child again after ``delay_s`` seconds."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class Forget:
    """The child's end was the end of it."""


@dataclass(frozen=True, slots=True)
class Escalate:
    """It fails too often for a restart to help: the supervisor ends too."""

    failures: int


Decision = Restart | Forget | Escalate


class RestartPolicy:
    """At most ``most`` restarts of one child in ``window_s`` seconds, with full-jitter backoff.

    The nth failure within the window waits up to ``base_s * 2**(n-1)``, at most ``cap_s``.
    """

    def __init__(
        self,
        most: int = 5,
        window_s: float = 60.0,
        base_s: float = 0.05,
        cap_s: float = 5.0,
        rng: random.Random | None = None,
    ) -> None:
        self._most = most
        self._window_s = window_s
        self._base_s = base_s
        self._cap_s = cap_s
        self._rng = rng or random.Random()  # noqa: S311 - jitter, not a secret
        self._ends: defaultdict[str, deque[float]] = defaultdict(deque)

    def decide(self, name: str, lifetime: Lifetime, failed: bool, now_s: float) -> Decision:
        """What to do after the end of a life of child ``name``."""
        if lifetime == "temporary" or (lifetime == "transient" and not failed):
            self._ends.pop(name, None)
            return Forget()
        ends = self._ends[name]
        ends.append(now_s)
        while ends and ends[0] <= now_s - self._window_s:
            ends.popleft()
        if len(ends) > self._most:
            return Escalate(len(ends))
        ceiling = min(self._cap_s, self._base_s * 2 ** (len(ends) - 1))
        return Restart(self._rng.uniform(0, ceiling))
