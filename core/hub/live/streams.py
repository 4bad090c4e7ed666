"""Every open connection that watches, so that all of a user's, or all, can be ended at once."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import structlog

from core.errors import LinkError
from core.hub.errors import HubError
from core.hub.live.limits import Seats
from core.hub.live.requests import WatchEnd
from core.hub.tokens import Verifier, invalid_token
from core.metrics import Metrics
from core.vault.handle import UserHandle

_GOODBYE_S = 1.5
"""What connections get at the server's stop to send what is left and to say goodbye."""
_RECHECK_S = 5.0

Kind = Literal["websocket", "sse"]

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, eq=False)
class _Open:
    handle: UserHandle
    token: str
    end: Callable[[WatchEnd], None]
    gone: asyncio.Event

    def __repr__(self) -> str:
        return f"_Open({self.handle!r})"


class Streams:
    """The open connections. Used on the loop.

    Args:
        most_per_user: how many a user may have; more are refused.
    """

    def __init__(self, verifier: Verifier, most_per_user: int, metrics: Metrics) -> None:
        self._verifier = verifier
        self._seats = Seats(most_per_user)
        self._metrics = metrics
        self._open: set[_Open] = set()
        self._stopping = False

    @contextmanager
    def open(
        self, handle: UserHandle, token: str, kind: Kind, end: Callable[[WatchEnd], None]
    ) -> Iterator[None]:
        """Count a connection in for as long as the block runs; ``end`` tells it to end, and why.

        HubError 429, 503 while the server stops, 401 for a user who was ended meanwhile.
        """
        if self._stopping:
            raise HubError(503, "the server is stopping; try again", "unavailable", retry_after_s=5)
        if not handle.standing.is_good():
            raise invalid_token()
        leave = self._seats.take(handle.user)
        one = _Open(handle, token, end, asyncio.Event())
        self._open.add(one)
        self._metrics.stream_opened(kind)
        try:
            yield
        finally:
            self._open.discard(one)
            one.gone.set()
            leave()
            self._metrics.stream_closed(kind)

    def end_user(self, user: str) -> int:
        """End all of a user's; how many there were."""
        found = [one for one in self._open if one.handle.user == user]
        for one in found:
            one.end("signed_out")
        return len(found)

    async def recheck(self) -> None:
        """End those whose token is none any more; one that cannot be asked about stays."""
        for one in list(self._open):
            try:
                async with asyncio.timeout(_RECHECK_S):
                    found = await self._verifier.verify(one.token)
            except (LinkError, TimeoutError):
                _log.warning("stream_not_rechecked", user=one.handle.user)
                continue
            if found is None and one in self._open:
                one.end("signed_out")

    async def stop(self) -> None:
        """End all, and wait a little for them to go."""
        self._stopping = True
        leaving = [one.gone.wait() for one in self._open]
        for one in list(self._open):
            one.end("stopping")
        try:
            async with asyncio.timeout(_GOODBYE_S):
                await asyncio.gather(*leaving)
        except TimeoutError:
            _log.warning("streams_left_at_stop", streams=len(self._open))
