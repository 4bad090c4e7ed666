"""How far apart a stream's pieces go to core: at once where they are taken at once, merged where not. Pure.

Who is behind tells it by how late credit comes back. A piece costs core and the jail about the same however
long it is, so fewer and longer ones are what helps, up to a delay that a reader does not mind.
"""

from collections import deque

MAX_GAP_S = 0.1
_QUICK_S = 0.03
"""Credit that comes back within this says that nobody is behind; at rest it takes 2 to 6 ms."""
_SLOWER = 2.0  # a gap, by how long credit took
_FASTER = 0.75  # what is left of a gap once credit comes quickly
_LEAST_S = 0.01  # a gap below this merges nothing


class Pacing:
    """One stream's; ``gap_s`` is what to keep between pieces. Times are in seconds, by the caller's clock.

    What a jail's credit says of its own stream changes that stream alone.
    """

    def __init__(self) -> None:
        self.gap_s = 0.0
        self._sent: deque[float] = deque()
        self._took_s = 0.0

    def sent(self, now_s: float) -> None:
        """A piece went, under credit."""
        self._sent.append(now_s)

    def granted(self, count: int, now_s: float) -> None:
        """Credit for the ``count`` oldest pieces came back, in one message once the last was taken."""
        sent_s = now_s
        for _ in range(min(count, len(self._sent))):
            sent_s = self._sent.popleft()
        self._took_s = (self._took_s + now_s - sent_s) / 2
        if self._took_s > _QUICK_S:
            self.gap_s = min(MAX_GAP_S, max(self.gap_s, _SLOWER * self._took_s))
        else:
            self.gap_s *= _FASTER
            if self.gap_s < _LEAST_S:
                self.gap_s = 0.0
