"""Streams a session's messages to a worker, a page at a time and never past its credit."""

import threading
from collections.abc import Callable, Sequence

import structlog

from actors.service import VerbRequest
from core.errors import CoreError, SealError
from core.sessions.errors import StorageError
from core.sessions.storage import Storage
from core.sessions.store import Page, UserStore
from core.sessions.turns import EphemeralSession, Session, StoredSession, message_bytes
from jail.wire.connection import STREAM_WINDOW
from jail.wire.schema import Done, History, Message

PAGE_BYTES = 256 << 10
PAGE_MESSAGES = 256
_PAGE_CALLS = 1_024
"""A page becomes one frame: far below 1 MiB and below the number of values a frame may have."""

_log = structlog.get_logger()


class Loading:
    """One ``session.load`` under way. Thread-safe; ``ended`` is called once it is closed."""

    def __init__(
        self, storage: Storage, request: VerbRequest, session: Session, ended: Callable[[], None]
    ) -> None:
        self._storage = storage
        self._request = request
        self._session = session
        self._ended = ended
        self._lock = threading.Lock()
        self._credit = STREAM_WINDOW
        self._reading = False
        self._closed = False
        self._after_seq = 0
        self._up_to_seq = -1

    def start(self) -> None:
        """Begin; what is appended to the session from now on is not part of the answer."""
        if isinstance(self._session, EphemeralSession):
            self._memory = self._session.messages()
            self._up_to_seq = len(self._memory)
        self._go_on()

    def credit(self, count: int) -> None:
        """That many more pages may be sent."""
        with self._lock:
            self._credit += count
        self._go_on()

    def cancel(self) -> None:
        """Stop; closes the request as cancelled."""
        if self._close():
            self._request.reply.fail("cancelled", "no longer wanted")

    def _go_on(self) -> None:
        with self._lock:
            if self._closed or self._reading or self._credit <= 0:
                return
            self._reading = True
        if isinstance(self._session, StoredSession):
            handle, session = self._session.handle, self._session.session_id
            self._storage.submit(handle, lambda store: self._page(store, session), self._came, self._fail)
            return
        # a loop, not a recursion through _came: a session in memory has any number of pages
        while self._send(_page_of(self._memory, self._after_seq)):
            pass

    def _page(self, store: UserStore, session: str) -> Page:
        if self._up_to_seq < 0:
            self._up_to_seq = store.last_seq(session)
        page = store.read_messages(session, self._after_seq, self._up_to_seq, PAGE_BYTES, PAGE_MESSAGES)
        return _fewer_calls(page)

    def _came(self, page: Page) -> None:
        if self._send(page):
            with self._lock:
                self._reading = False
            self._go_on()

    def _send(self, page: Page) -> bool:
        """Send a page; whether the next one may be read now."""
        with self._lock:
            if self._closed:
                return False
            self._after_seq = page.last_seq
            self._credit -= 1
        if page.messages:
            self._request.reply.item(History(page.messages))
        if not page.more:
            if self._close():
                self._request.reply.done(Done())
            return False
        with self._lock:
            self._reading = self._credit > 0
            return self._reading

    def _fail(self, error: CoreError) -> None:
        if self._close():
            fail_request(self._request, error)

    def _close(self) -> bool:
        with self._lock:
            first, self._closed = not self._closed, True
        if first:
            self._ended()
        return first


def fail_request(request: VerbRequest, error: CoreError) -> None:
    """Answer a request with what went wrong, in terms of the wire."""
    if isinstance(error, StorageError):
        request.reply.fail(error.code, str(error), 1 if error.code == "overloaded" else None)
    elif isinstance(error, SealError):
        _log.error("record_not_opened", user=request.handle.user, error=str(error))
        request.reply.fail("internal", "what is stored did not open; tell the operator")
    else:
        request.reply.fail("invalid", str(error))


def _page_of(messages: Sequence[Message], start: int) -> Page:
    size, end = 0, start
    while end < len(messages) and end - start < PAGE_MESSAGES:
        size += message_bytes(messages[end])
        if end > start and size > PAGE_BYTES:
            break
        end += 1
    return _fewer_calls(Page(tuple(messages[start:end]), end, end < len(messages)))


def _fewer_calls(page: Page) -> Page:
    """The same page, cut where its messages carry too many tool calls for one frame."""
    calls = 0
    for number, message in enumerate(page.messages):
        calls += len(message.tool_calls)
        if calls > _PAGE_CALLS and number:
            cut = len(page.messages) - number
            return Page(page.messages[:number], page.last_seq - cut, True)
    return page
