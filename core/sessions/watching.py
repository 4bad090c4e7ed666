"""A client's place in a session's log, and its next events from there: each once, in order.

What is recent comes from the session's feed, what is older from the disk. The place is the client's
alone: how slowly it reads costs nobody else anything.
"""

import asyncio
from dataclasses import dataclass
from typing import Literal

from core.sessions.asking import ask_storage
from core.sessions.errors import NoSuchSession
from core.sessions.eventlog import EventLog, LogPage
from core.sessions.events import SessionEvent, ends_turn
from core.sessions.feed import Feeds, Window
from core.sessions.storage import Storage
from core.vault.handle import UserHandle

MAX_BATCH = 256
_PAGE_BYTES = 256 << 10
_NOWHERE = 2**53

Loss = Literal["behind", "ahead", "deleted"]


@dataclass(frozen=True, slots=True)
class Lost:
    """Nothing more can come.

    ``behind``: what follows the client's place was cut from the log, whose oldest event is ``oldest``.
    ``ahead``: the place is past the newest event, ``last``. ``deleted``: the session was.
    """

    reason: Loss
    oldest: int = 0
    last: int = 0


Next = tuple[SessionEvent, ...] | Lost | Literal["read", "wait"]


class Place:
    """Where a client stands, and where its next events are: decisions alone.

    Args:
        after: the last id that it has; None: it wants what comes from now on.
    """

    def __init__(self, after: int | None) -> None:
        self._wanted = after
        self._known = False  # that nothing is on disk past the place which the window doesn't have
        self.after = after or 0
        self.at_end = False  # of a turn: the last event given ends one, or none runs

    @property
    def reads_after(self) -> int:
        """From where a page of the disk is wanted."""
        return _NOWHERE if self._wanted is None else self.after

    def next(self, window: Window) -> Next:
        """The next events, or what to do for them: ``read`` the disk, ``wait`` for more."""
        if self._wanted is None:
            return "read"
        found = window.past(self.after, MAX_BATCH)
        if found:
            return self._give(found)
        if found is None and (window.last_id > self.after or not self._known):
            return "read"
        return "wait"

    def take(self, page: LogPage, window: Window) -> Next:
        """What a page past the place means; it was read after the window's last event or before it."""
        first, self._known = not self._known, True
        if self._wanted is None:
            self._wanted = self.after = page.last
            self.at_end = not page.running
            return self.next(window)
        if first and self.after > max(page.last, window.last_id):
            return Lost("ahead", page.oldest, page.last)
        if self.after + 1 < page.oldest:
            return Lost("behind", page.oldest, page.last)
        if page.events:
            return self._give(page.events)
        self.at_end = self.at_end or not page.running
        if window.last_id > self.after:
            # what could not be stored: it is in the window alone
            return self._give(window.past(self.after, MAX_BATCH) or window.all(MAX_BATCH))
        return "wait"

    def _give(self, events: tuple[SessionEvent, ...]) -> tuple[SessionEvent, ...]:
        self.after = events[-1].id
        self.at_end = ends_turn(events)
        return events


class Watch:
    """One client's watch of one session; used on the loop, closed when it is over.

    Raises StorageError and SealError where the log cannot be read.
    """

    def __init__(
        self, storage: Storage, feeds: Feeds, handle: UserHandle, session: str, after: int | None
    ) -> None:
        self.session = session
        self._storage, self._feeds, self._handle = storage, feeds, handle
        self._place = Place(after)
        self._woken = asyncio.Event()
        self._feed = feeds.enter(handle.user, session, self._woken.set)
        self._stopped: Literal["no", "soon", "now"] = "no"
        self._ready: tuple[SessionEvent, ...] = ()

    @property
    def after(self) -> int:
        """The last id that was given, or the one to begin after."""
        return self._ready[0].id - 1 if self._ready else self._place.after

    async def open(self) -> Lost | None:
        """Take up the place; Lost where that cannot be. NoSuchSession."""
        found = self._place.take(await self._page(), self._feed.window)
        if isinstance(found, tuple):
            self._ready = found
        return found if isinstance(found, Lost) else None

    def has_more(self) -> bool:
        """Whether there is something to give now, or a turn runs that will."""
        return bool(self._ready) or not self._place.at_end or self._place.next(self._feed.window) != "wait"

    async def next(
        self, idle_s: float | None = None, until_end: bool = False
    ) -> tuple[SessionEvent, ...] | Lost | None:
        """The next events; () when none came for ``idle_s`` seconds.

        None: all was given, and :meth:`stop` was called, or with ``until_end`` no turn runs.
        """
        while self._stopped != "now":
            if self._ready:
                ready, self._ready = self._ready, ()
                return ready
            self._woken.clear()
            found = self._place.next(self._feed.window)
            if found == "read" or (found == "wait" and self._stopped == "soon"):
                # once stopped, this comes behind whatever of the user's waits to be stored
                found = await self._read()
            if not isinstance(found, str):
                return found
            if self._feed.deleted:
                return Lost("deleted")
            if self._stopped == "soon" or (until_end and self._place.at_end):
                return None
            if not await self._wait(idle_s):
                return ()
        return None

    def stop(self, at_once: bool) -> None:
        """Give no more, or only what the log has by now."""
        self._stopped = "now" if at_once else "soon"
        self._woken.set()

    def close(self) -> None:
        """Leave; harmless when done before."""
        self._feeds.leave(self._handle.user, self.session, self._feed, self._woken.set)

    async def _read(self) -> Next:
        async with self._feed.reading:
            try:
                page = await self._page()
            except NoSuchSession:
                return Lost("deleted")
        return self._place.take(page, self._feed.window)

    async def _page(self) -> LogPage:
        after = self._place.reads_after
        return await ask_storage(
            self._storage,
            self._handle,
            lambda store: EventLog(store).read(self.session, after, MAX_BATCH, _PAGE_BYTES),
        )

    async def _wait(self, idle_s: float | None) -> bool:
        if idle_s is None:
            return await self._woken.wait()
        try:
            async with asyncio.timeout(idle_s):
                return await self._woken.wait()
        except TimeoutError:
            return False
