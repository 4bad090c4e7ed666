"""One running chat: a provider on one side, the credit of core's on the other."""

import asyncio
from collections.abc import Callable
from typing import Literal

import msgspec

from core.egress.messages import ChatItem, ChatStart
from core.egress.outbox import Item, Outbox
from core.egress.pacing import Pacing
from core.egress.providers import ProviderError
from core.egress.secret import StreamStriker, Striker
from jail.wire.schema import ChatCall, ToolCall

NO_CREDIT_S = 900.0
"""How long a stream waits for credit before it gives up: as long as a turn takes by default."""


class Stream:
    """Where a provider's answer goes (see :class:`core.egress.providers.Outlet`).

    Args:
        ask: what was asked; its id names the stream.
        send: takes a message for core, at once.
        striker: knows every secret that must not come back in an answer.
    """

    def __init__(self, ask: ChatStart, send: Callable[[msgspec.Struct], None], striker: Striker) -> None:
        self.ask = ask
        self._send_message = send
        self._outbox = Outbox()
        self._pacing = Pacing()
        self._loop = asyncio.get_running_loop()
        self._link_open = True
        self._rest: asyncio.TimerHandle | None = None
        self._moved = asyncio.Event()
        self._striker = striker
        self._tail = StreamStriker(striker)
        self._kind: Literal["text", "reasoning"] = "text"

    async def text(self, text: str) -> None:
        """A piece of the answer."""
        await self._delta("text", text)

    async def reasoning(self, text: str) -> None:
        """A piece of the reasoning."""
        await self._delta("reasoning", text)

    async def call(self, call: ToolCall) -> None:
        """A whole tool call."""
        self._release_tail()
        strike = self._striker.strike
        struck = ToolCall(strike(call.id), strike(call.name), strike(call.arguments))
        self._send(self._outbox.call(ChatCall(struck)))
        self._end_rest()  # whoever waits for a call waits for nothing else
        await self._room()

    async def drain(self) -> None:
        """Wait until everything has gone. Raises ProviderError where nobody takes it."""
        self._release_tail()
        self._end_rest()
        while not self._outbox.empty:
            await self._wait()

    def grant(self, count: int) -> None:
        """Core takes ``count`` more items."""
        self._pacing.granted(count, self._loop.time())
        self._send(self._outbox.grant(count))
        self._moved.set()

    def set_open(self, is_open: bool) -> None:
        """Whether the link takes anything at present."""
        self._link_open = is_open
        self._open()

    def close(self) -> None:
        """Send nothing more by itself; harmless when it has ended."""
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None

    async def _delta(self, kind: Literal["text", "reasoning"], text: str) -> None:
        if kind != self._kind:
            self._release_tail()
            self._kind = kind
        self._put(self._tail.feed(text))
        await self._room()

    def _release_tail(self) -> None:
        self._put(self._tail.finish())

    def _put(self, text: str) -> None:
        if text:
            add = self._outbox.text if self._kind == "text" else self._outbox.reasoning
            self._send(add(text))

    def _send(self, items: list[Item]) -> None:
        for item in items:
            self._pacing.sent(self._loop.time())
            self._send_message(ChatItem(self.ask.id, item))
        if items and self._pacing.gap_s and self._rest is None:
            self._rest = self._loop.call_later(self._pacing.gap_s, self._end_rest)
            self._outbox.set_open(False)  # until then what comes merges

    def _end_rest(self) -> None:
        self.close()
        self._open()

    def _open(self) -> None:
        self._send(self._outbox.set_open(self._link_open and self._rest is None))
        self._moved.set()

    async def _room(self) -> None:
        while self._outbox.full:
            await self._wait()

    async def _wait(self) -> None:
        self._moved.clear()
        try:
            async with asyncio.timeout(NO_CREDIT_S):
                await self._moved.wait()
        except TimeoutError:
            raise ProviderError("timeout", f"nobody took the answer's pieces for {NO_CREDIT_S:g} s") from None
