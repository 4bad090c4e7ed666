"""Who has the connections that there may be, and who gives one up when all are taken. Pure.

A connection costs its client nothing, and one address could hold all of them. So one on which nothing
is asked is only lent: when no place is free, the address that has most of those gives up its oldest.
Whoever is being answered, which takes a token, stays.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from core.hub.logins import address_group

_SHARE = 16
"""So many at a time: to look through all of them for each one would be work that anybody can ask for."""


@dataclass(slots=True, eq=False)
class Place:
    """A connection's, from its acceptance on.

    Args:
        address: the peer's; empty on a Unix socket.
        since_s: when it began or was answered last (monotonic, in seconds).
        end: closes the connection.
        busy: whether it is being answered.
    """

    address: str
    since_s: float
    end: Callable[[], None]
    busy: bool = False

    @contextmanager
    def answering(self, clock_s: Callable[[], float]) -> Iterator[None]:
        """While it is answered."""
        self.busy = True
        try:
            yield
        finally:
            self.busy, self.since_s = False, clock_s()


class Places:
    """All of a listener's. Used on the hub's loop.

    Args:
        most: how many there are.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: dict[Place, None] = {}

    def __len__(self) -> int:
        return len(self._taken)

    def take(self, place: Place) -> bool:
        """Whether there is room for one more, made if need be; then it has it until :meth:`leave`."""
        if len(self._taken) >= self._most and not self._make_room():
            return False
        self._taken[place] = None
        return True

    def leave(self, place: Place) -> None:
        """It is gone; harmless twice."""
        self._taken.pop(place, None)

    def _make_room(self) -> bool:
        idle = [(address_group(place.address), place) for place in self._taken if not place.busy]
        if not idle:
            return False
        ((greediest, count),) = Counter(address for address, _ in idle).most_common(1)
        theirs = [place for address, place in idle if address == greediest]
        theirs.sort(key=lambda place: place.since_s)
        for place in theirs[: max(1, count // _SHARE)]:
            self.leave(place)
            place.end()
        return True
