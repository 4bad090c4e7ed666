"""What was just written to sessions' logs, kept a while for those who watch them.

Storage threads publish what they have committed, and nothing earlier: a client is never given an
event that a restart could take back. A session that nobody watches costs a look into a dictionary.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

from core.loop_calls import loop_calls
from core.sessions.events import SessionEvent

_MAX_EVENTS = 512
_MAX_BYTES = 512 << 10
_EVENT_BYTES = 600
"""What an event takes in memory beside its data, its encoded form included."""
_MAX_COMING = 4_096
"""Events on their way to a loop that is late; what is dropped is read from the disk."""


class Window:
    """The newest events of a session, without a gap, bounded by number and bytes."""

    def __init__(self, max_events: int = _MAX_EVENTS, max_bytes: int = _MAX_BYTES) -> None:
        self._max_events, self._max_bytes = max_events, max_bytes
        self._events: deque[SessionEvent] = deque()
        self._bytes = 0

    @property
    def last_id(self) -> int:
        """The newest event's id, 0 while there is none."""
        return self._events[-1].id if self._events else 0

    def add(self, events: Sequence[SessionEvent]) -> None:
        """Take newer events."""
        for event in events:
            if self._events and event.id != self._events[-1].id + 1:
                self._events.clear()
                self._bytes = 0
            self._events.append(event)
            self._bytes += event.size + _EVENT_BYTES
        while len(self._events) > 1 and (
            len(self._events) > self._max_events or self._bytes > self._max_bytes
        ):
            self._bytes -= self._events.popleft().size + _EVENT_BYTES

    def past(self, after_id: int, most: int) -> tuple[SessionEvent, ...] | None:
        """Up to ``most`` events past an id; None where what follows it isn't here, or not known to be."""
        if not self._events or after_id + 1 < self._events[0].id:
            return None
        seen = after_id + 1 - self._events[0].id
        return tuple(islice(self._events, seen, seen + most))

    def has(self, event: SessionEvent) -> bool:
        """Whether it is here: the same by its place, its turn and its time."""
        found = self.past(event.id - 1, 1)
        return (
            found is not None
            and found != ()
            and (found[0].turn, found[0].time_ms) == (event.turn, event.time_ms)
        )

    def all(self, most: int) -> tuple[SessionEvent, ...]:
        """The first ``most`` of them."""
        return tuple(islice(self._events, most))


class Feed:
    """What is published of one session, and whom to wake. Made and read on the loop."""

    def __init__(self) -> None:
        self.window = Window()
        self.deleted = False
        self.reading = asyncio.Lock()
        """One who lags reads the disk at a time: a user's watchers don't keep its thread busy."""
        self.watchers: set[Callable[[], None]] = set()
        self._calls = loop_calls()
        self._lock = threading.Lock()
        self._coming: deque[SessionEvent] = deque(maxlen=_MAX_COMING)
        self._gone = False
        self._posted = False

    def publish(self, events: Sequence[SessionEvent]) -> None:
        """Take what was committed; any thread."""
        with self._lock:
            self._coming.extend(events)
        self._post()

    def end(self) -> None:
        """The session was deleted; any thread."""
        with self._lock:
            self._gone = True
        self._post()

    def _post(self) -> None:
        with self._lock:
            posted, self._posted = self._posted, True
        if not posted:
            self._calls.post(self._take)

    def _take(self) -> None:
        with self._lock:
            self._posted = False
            coming, self.deleted = list(self._coming), self._gone
            self._coming.clear()
        # a turn's end that could not be stored at once was told then
        coming = [event for event in coming if not self.window.has(event)]
        if coming and coming[0].id <= self.window.last_id:
            self.deleted = True  # the ids begin anew: it is another session of the same name
        else:
            self.window.add(coming)
        for wake in self.watchers:
            wake()


class Feeds:
    """The feeds of all sessions that are watched. Publishing is thread-safe."""

    def __init__(self) -> None:
        self._feeds: dict[tuple[str, str], Feed] = {}

    def publish(self, user: str, session: str, events: Callable[[], Sequence[SessionEvent]]) -> None:
        """Tell the watchers of what was committed, if there are any; any thread."""
        feed = self._feeds.get((user, session))
        if feed is not None:
            feed.publish(events())

    def end(self, user: str, session: str) -> None:
        """The session was deleted. On the loop."""
        feed = self._feeds.pop((user, session), None)
        if feed is not None:
            feed.end()

    def enter(self, user: str, session: str, wake: Callable[[], None]) -> Feed:
        """Watch from now on. On the loop."""
        feed = self._feeds.get((user, session))
        if feed is None:
            feed = self._feeds[user, session] = Feed()
        feed.watchers.add(wake)
        return feed

    def leave(self, user: str, session: str, feed: Feed, wake: Callable[[], None]) -> None:
        """No longer. On the loop."""
        feed.watchers.discard(wake)
        if not feed.watchers and self._feeds.get((user, session)) is feed:
            del self._feeds[user, session]
