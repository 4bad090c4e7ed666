"""A user's sessions for whoever asks over HTTP: each call a few bounded jobs of the storage's."""

import time
from collections.abc import AsyncIterator

from core.sessions.loading import PAGE_BYTES, PAGE_MESSAGES
from core.sessions.service import SessionsService, ask_storage
from core.sessions.shelf import FORK_BYTES, Budget, Cursor, Found, Hit, Shelf
from core.sessions.storage import Storage
from core.sessions.store import Labels, Page, SessionRow, UserStore, check_session_id
from core.vault.handle import UserHandle

_STEPS = 24
_STEP_MESSAGES = 256
_STEP_BYTES = 1 << 20


class Library:
    """Used on the hub's loop. Raises NoSuchSession, StorageError, SealError."""

    def __init__(self, storage: Storage, sessions: SessionsService) -> None:
        self._storage = storage
        self._sessions = sessions

    async def page(self, handle: UserHandle, limit: int, after: Cursor | None) -> list[SessionRow]:
        """Some sessions, the latest first."""
        return await ask_storage(self._storage, handle, lambda store: Shelf(store).page(limit, after))

    async def find(self, handle: UserHandle, session: str) -> SessionRow:
        """One session."""
        return await ask_storage(self._storage, handle, lambda store: Shelf(store).find(session))

    async def messages(
        self, handle: UserHandle, session: str, after_seq: int, limit: int
    ) -> tuple[SessionRow, Page]:
        """A session and some of its messages, as many as fit into 256 KiB but one at least."""

        def work(store: UserStore) -> tuple[SessionRow, Page]:
            found = Shelf(store).find(session)
            return found, store.read_messages(session, after_seq, found.messages, PAGE_BYTES, limit)

        return await ask_storage(self._storage, handle, work)

    async def all_messages(self, handle: UserHandle, found: SessionRow) -> AsyncIterator[Page]:
        """All that a session had when it was found, page by page."""
        after_seq = 0
        while True:

            def work(store: UserStore, after_seq: int = after_seq) -> Page:
                return store.read_messages(found.id, after_seq, found.messages, PAGE_BYTES, PAGE_MESSAGES)

            page = await ask_storage(self._storage, handle, work)
            yield page
            if not page.more:
                return
            after_seq = page.last_seq

    async def rename(self, handle: UserHandle, session: str, title: str) -> SessionRow:
        """Give a session another title."""
        return await ask_storage(self._storage, handle, lambda store: Shelf(store).rename(session, title))

    async def label(self, handle: UserHandle, session: str, labels: Labels) -> SessionRow:
        """Keep what a session's last request said of itself."""
        return await ask_storage(self._storage, handle, lambda store: Shelf(store).label(session, labels))

    async def delete(self, handle: UserHandle, session: str) -> None:
        """Delete a session. SessionBusy while a turn runs in it."""
        with self._sessions.reserved(handle.user, session):
            await ask_storage(self._storage, handle, lambda store: Shelf(store).delete(session))

    async def fork(self, handle: UserHandle, session: str, at: int, new: str) -> SessionRow:
        """Begin a session with a copy of another's first messages; see :meth:`Shelf.fork`."""
        check_session_id(new)

        def work(store: UserStore) -> SessionRow:
            return Shelf(store).fork(session, at, new, int(time.time()))

        with self._sessions.reserved(handle.user, new):
            return await ask_storage(self._storage, handle, work, FORK_BYTES // 4)

    async def search(self, handle: UserHandle, words: str, start: Cursor | None, limit: int) -> Found:
        """Search for text: up to ``limit`` hits, or as far as some 6,000 messages or 24 MiB go."""
        hits: list[Hit] = []
        at = start
        for _ in range(_STEPS):
            budget = Budget(_STEP_MESSAGES, _STEP_BYTES, limit - len(hits))

            def work(store: UserStore, at: Cursor | None = at, budget: Budget = budget) -> Found:
                return Shelf(store).search(words, at, budget)

            step = await ask_storage(self._storage, handle, work)
            hits += step.hits
            at = step.next
            if at is None or len(hits) >= limit:
                break
        return Found(hits, at)
