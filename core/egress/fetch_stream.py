"""One running fetch's two streams: the request's body in, the answer's items out, each within a bound."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable

import msgspec

from core.egress.fetch_messages import FetchBody, FetchFailed, FetchItem, FetchStart, FetchTaken
from core.errors import CoreError
from jail.wire.connection import STREAM_WINDOW
from jail.wire.schema import ErrorCode, Failure, HttpItem

_MAX_WAITING = 2  # pieces of a body that nobody has taken yet: a worker sends one at a time
_NO_CREDIT_S = 300.0
_NO_BODY_S = 60.0


class FetchError(CoreError):
    """A fetch failed; ``failure`` says how, for programs and for people."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.failure = Failure(code, message[:2_000])

    @classmethod
    def of(cls, failure: Failure) -> "FetchError":
        """One that fails just so."""
        error = cls(failure.code, failure.message)
        error.failure = failure
        return error


class FetchStream:
    """Where a fetch's pieces come from and go to. On the loop's thread.

    Args:
        ask: what was asked; its id names the stream.
        send: takes a message for core, at once.
    """

    def __init__(self, ask: FetchStart, send: Callable[[msgspec.Struct], None]) -> None:
        self.ask = ask
        self._send = send
        self._credit = STREAM_WINDOW
        self._open = True
        self._moved = asyncio.Event()
        self._parts: deque[FetchBody] = deque()
        self._came = asyncio.Event()

    async def put(self, item: HttpItem) -> None:
        """Send an item, as soon as core takes one. Raises FetchError where nobody does."""
        while not (self._credit and self._open):
            self._moved.clear()
            try:
                async with asyncio.timeout(_NO_CREDIT_S):
                    await self._moved.wait()
            except TimeoutError:
                raise FetchError("timeout", f"nobody took the answer for {_NO_CREDIT_S:g} s") from None
        self._credit -= 1
        self._send(FetchItem(self.ask.id, item))

    def grant(self, count: int) -> None:
        """Core takes ``count`` more items."""
        self._credit += count
        self._moved.set()

    def set_open(self, is_open: bool) -> None:
        """Whether the link takes anything at present."""
        self._open = is_open
        self._moved.set()

    def feed(self, part: FetchBody) -> None:
        """A further piece of the body."""
        if not self.ask.more or len(self._parts) >= _MAX_WAITING or (self._parts and self._parts[-1].last):
            self._send(FetchFailed(part.id, Failure("invalid", "no such piece of a body is waited for")))
            return
        self._parts.append(part)
        self._came.set()

    async def body(self) -> AsyncIterator[bytes]:
        """The request's body, piece by piece. Raises FetchError where the rest does not come."""
        if self.ask.body:
            yield self.ask.body
        last = not self.ask.more
        while not last:
            while not self._parts:
                self._came.clear()
                try:
                    async with asyncio.timeout(_NO_BODY_S):
                        await self._came.wait()
                except TimeoutError:
                    raise FetchError("timeout", f"the body stopped coming for {_NO_BODY_S:g} s") from None
            part = self._parts.popleft()
            if part.data:
                yield part.data
            last = part.last
            self._send(FetchTaken(part.id))

    def close(self) -> None:
        """Whoever waits for a piece to be taken is told that none will be."""
        for part in self._parts:
            self._send(FetchFailed(part.id, Failure("not_found", "this fetch is over")))
        self._parts.clear()
