"""Large requests, and the files in them: how many are dealt with at once, and where the files go."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from aiohttp import web

from core.config import HubSection
from core.hub.agents import Agents
from core.hub.delivery import find_agent
from core.hub.errors import HubError
from core.hub.inbox import Inbox, InboxLimits
from core.hub.jail_call import JailCalls
from core.hub.keeping import Keeper
from core.vault.handle import UserHandle
from jail.wire.schema import Message

_LARGE_BYTES = 1 << 20
_MAX_LARGE = 12
"""Each costs about four times its size while it is read, and until its files are stored."""
_MAX_LARGE_OF_USER = 3
_CROWDED = _MAX_LARGE // 2
"""From so many on only who has none gets one: a body may take a minute, and four users could have all."""


class LargeRequests:
    """How many are in memory, and whose. Pure."""

    def __init__(self) -> None:
        self._of: Counter[str] = Counter()

    def enter(self, user: str) -> None:
        """Count one in; HubError 429 where there are too many."""
        total = self._of.total()
        most = 1 if total >= _CROWDED else _MAX_LARGE_OF_USER
        if total >= _MAX_LARGE or self._of[user] >= most:
            raise HubError(
                429, "as many large requests are read as can be; try again", "overloaded", retry_after_s=2
            )
        self._of[user] += 1

    def leave(self, user: str) -> None:
        """Count it out."""
        self._of[user] -= 1
        if not self._of[user]:
            del self._of[user]


class Intake:
    """Used on the hub's loop."""

    def __init__(self, agents: Agents, calls: JailCalls, config: HubSection) -> None:
        self._agents = agents
        self._keeper = Keeper(calls)
        self._limits = InboxLimits(config.max_attachments, config.max_attachment_bytes)
        self._large = LargeRequests()

    def inbox(self) -> Inbox:
        """For the files of one request."""
        return Inbox(self._limits)

    @contextmanager
    def room(self, handle: UserHandle, request: web.Request) -> Iterator[None]:
        """While a request is in memory; HubError 429 where there are too many large ones."""
        user, length = handle.user, request.content_length
        if length is not None and length <= _LARGE_BYTES:
            yield
            return
        self._large.enter(user)
        try:
            yield
        finally:
            self._large.leave(user)

    async def keep(
        self, handle: UserHandle, agent: str, messages: Sequence[Message], inbox: Inbox
    ) -> list[Message]:
        """The messages, their files in the user's home; stores nothing for an agent that is none."""
        if not inbox.files:
            return list(messages)
        find_agent(self._agents, handle.user, agent)
        return await self._keeper.keep(handle, messages, inbox.files)
