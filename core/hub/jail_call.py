"""A request to a user's jail as the hub's loop sees it: an async iterator over items, then a reply.

The answer comes on the user actor's thread; what has come and was not yet taken is bounded by the
credit that taking it gives back, so a client that reads slowly slows its own jail down.
"""

import asyncio
import threading
from collections import deque
from types import TracebackType
from typing import Any, Protocol

import structlog

from actors.calls import CallSpec
from core.acting import current_request
from core.errors import LinkError
from core.hub.errors import HubError, from_failure
from core.hub.tokens import invalid_token
from core.vault.handle import UserHandle
from jail.wire.connection import STREAM_WINDOW
from jail.wire.schema import Body, Failure, ToJail

_GRANT_AT = STREAM_WINDOW // 2
SILENCE_S = 60.0
"""How long a jail may say nothing: its start is part of it."""

_log = structlog.get_logger()


class JailCalls(Protocol):
    """Tells the users' actors. Thread-safe; never blocks."""

    def call(self, spec: CallSpec) -> None:
        """Make a request of a user's jail."""
        ...

    def grant_call(self, spec: CallSpec, count: int) -> None:
        """Let that many more items of a call come."""
        ...

    def cancel_call(self, spec: CallSpec) -> None:
        """End a call early; harmless when it is over."""
        ...


class JailFailure(HubError):
    """The jail's worker, or whoever stands for it, refused; ``failure`` says how."""

    def __init__(self, failure: Failure) -> None:
        said = from_failure(failure, acted=False)
        super().__init__(said.status, said.message, said.code, headers=said.headers)
        self.failure = failure


class JailCall:
    """One request; made on the loop. Leaving it as a context manager ends it.

    Args:
        timeout_s: for all of it (in seconds).
    """

    def __init__(self, calls: JailCalls, handle: UserHandle, body: ToJail, timeout_s: float) -> None:
        self._calls = calls
        self._handle = handle
        self._loop = asyncio.get_running_loop()
        self._spec: CallSpec | None = CallSpec(handle, body, self, timeout_s, current_request())
        self._lock = threading.Lock()
        self._items: deque[Any] = deque()
        self._outcome: Body | Failure | None = None
        self._changed = asyncio.Event()
        self._taken = 0
        try:
            calls.call(self._spec)
        except LinkError as error:
            raise HubError(503, str(error), "unavailable", retry_after_s=2) from None

    # -- on the actor's thread ------------------------------------------------------------------------

    def item(self, body: Body) -> None:
        """See :class:`actors.calls.CallSink`."""
        with self._lock:
            self._items.append(body)
        self._wake()

    def finish(self, outcome: Body | Failure) -> None:
        """See :class:`actors.calls.CallSink`."""
        with self._lock:
            self._outcome = outcome
        self._wake()

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._changed.set)
        except RuntimeError:
            _log.debug("jail_answer_came_after_loop")  # the loop is closed: nobody waits for it

    # -- on the loop ------------------------------------------------------------------------------------

    async def __aenter__(self) -> "JailCall":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __aiter__(self) -> "JailCall":
        return self

    async def __anext__(self) -> Any:
        """The next item; JailFailure where the call failed, HubError 504 where nothing comes, 401 where
        the user was ended meanwhile.
        """
        while True:
            with self._lock:
                item = self._items.popleft() if self._items else None
                outcome = self._outcome
                self._changed.clear()
            if not self._handle.standing.is_good():
                raise invalid_token()
            if item is not None:
                self._give_back()
                return item
            if isinstance(outcome, Failure):
                raise JailFailure(outcome)
            if outcome is not None:
                raise StopAsyncIteration
            try:
                async with asyncio.timeout(SILENCE_S):
                    await self._changed.wait()
            except TimeoutError:
                raise HubError(504, f"your jail said nothing for {SILENCE_S:g} s", "timeout") from None

    async def reply(self) -> Any:
        """The closing body; items that are left are dropped."""
        async for _ in self:
            pass
        return self._outcome

    def close(self) -> None:
        """End the call if it is not over; nothing more is taken from it. Harmless twice."""
        with self._lock:
            over = self._outcome is not None
            self._items.clear()
        # the spec holds us as its sink, and what is sent with it: a circle would keep that for a while
        spec, self._spec = self._spec, None
        if spec is not None and not over:
            self._calls.cancel_call(spec)

    def _give_back(self) -> None:
        self._taken += 1
        if self._taken >= _GRANT_AT and self._spec is not None:
            self._calls.grant_call(self._spec, self._taken)
            self._taken = 0


async def ask_jail(calls: JailCalls, handle: UserHandle, body: ToJail, timeout_s: float) -> Any:
    """One question, one answer."""
    async with JailCall(calls, handle, body, timeout_s) as call:
        return await call.reply()
