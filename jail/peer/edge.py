"""The worker's end of the edge: requests as awaitables over the sans-IO connection.

``ask`` is one question and its answer; ``stream`` is a request whose items are iterated, with
credit granted as they are consumed, so whoever reads slowly slows its answerer down.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol

from jail.peer.errors import AskFailed
from jail.wire.connection import (
    MAX_OPEN,
    STREAM_WINDOW,
    Asked,
    CancelCame,
    Connection,
    CreditCame,
    Failed,
    ItemCame,
    PeerReady,
    Replied,
)
from jail.wire.schema import Body, ErrorCode, Failure

_GRANT_AT = STREAM_WINDOW // 2  # items consumed before one CREDIT frame gives them back
_MAX_ASKS = MAX_OPEN - 4  # requests of ours at once; one more than MAX_OPEN would be our fault


class Answerer(Protocol):
    """Who takes what core asks of the worker; every method returns at once."""

    def on_ready(self) -> None:
        """The handshake is done."""

    def on_asked(self, asked: Asked) -> None:
        """Core opened a request."""

    def on_credit(self, request_id: int) -> None:
        """More items may be sent for core's request."""

    def on_cancel(self, request_id: int) -> None:
        """Core no longer wants its request."""


class Request:
    """One request of ours: an async iterator over its items, then ``result``.

    Use it as an async context manager: leaving it early cancels the request. Iterating raises
    AskFailed when the request is closed with an error, or when nothing came for ``silence_s``, in
    which the time while its turn is held does not count.
    """

    def __init__(self, edge: "Edge", request_id: int, silence_s: float, turn: str) -> None:
        self._edge = edge
        self._id = request_id
        self._turn = turn
        self._silence_s = silence_s
        self._items: deque[Any] = deque()
        self._outcome: Replied | Failed | None = None
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[bool] | None = None
        self._consumed = 0

    async def __aenter__(self) -> "Request":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __aiter__(self) -> "Request":
        return self

    async def __anext__(self) -> Any:
        while not self._items:
            if isinstance(self._outcome, Failed):
                raise AskFailed(self._outcome.failure)
            if self._outcome is not None:
                raise StopAsyncIteration
            await self._wait()
        item = self._items.popleft()
        self._consumed += 1
        if self._consumed >= _GRANT_AT and self._outcome is None:
            self._edge.grant(self._id, self._consumed)
            self._consumed = 0
        return item

    async def result(self) -> Any:
        """Wait for the reply's body; items that were not iterated are dropped."""
        async for _ in self:
            pass
        assert isinstance(self._outcome, Replied)
        return self._outcome.body

    def close(self) -> None:
        """Cancel the request if it is still open; nothing more is taken from it."""
        if self._outcome is None:
            self._edge.give_up(self._id)

    def take_item(self, item: Any) -> None:
        """The edge delivers an item."""
        self._items.append(item)
        self._wake(True)

    def take_outcome(self, outcome: Replied | Failed) -> None:
        """The edge delivers the closing frame."""
        self._outcome = outcome
        self._wake(True)

    async def _wait(self) -> None:
        # a bare future and timer: an Event below asyncio.timeout costs several times as much, an item
        self._waiter = self._loop.create_future()
        self._timer = self._loop.call_later(self._silence_s, self._silent)
        try:
            came = await self._waiter
        finally:
            self._timer.cancel()
            self._waiter = None
        if not came:
            self.close()
            message = f"the server did not answer for {self._silence_s:g} s"
            raise AskFailed(Failure("timeout", message))

    def _silent(self) -> None:
        if self._turn in self._edge.held:  # a person is asked, who may take longer than core would
            self._timer = self._loop.call_later(self._silence_s, self._silent)
        else:
            self._wake(False)

    def _wake(self, came: bool) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(came)


class Edge:
    """Both directions of the conversation with core, on the loop's thread.

    Args:
        connection: the protocol's state (side "worker").
        send: takes a frame for the peer.
        room: waits until ``send`` has room again.
        answerer: who serves core's requests.
    """

    def __init__(
        self,
        connection: Connection,
        send: Callable[[bytes], None],
        room: Callable[[], Any],
        answerer: Answerer,
    ) -> None:
        self._connection = connection
        self._send = send
        self._room = room
        self._answerer = answerer
        self._requests: dict[int, Request] = {}
        self.held: set[str] = set()
        """Turns whose time stands still."""
        self._freed = asyncio.Event()

    def on_frame(self, frame: bytes) -> None:
        """Take one frame from core; raises PeerFault."""
        for event in self._connection.receive(frame):
            match event:
                case ItemCame(id=request_id, body=body):
                    if (request := self._requests.get(request_id)) is not None:
                        request.take_item(body)
                case Replied(id=request_id) | Failed(id=request_id):
                    self._freed.set()
                    if (request := self._requests.pop(request_id, None)) is not None:
                        request.take_outcome(event)
                case Asked():
                    self._answerer.on_asked(event)
                case CreditCame(id=request_id):
                    self._answerer.on_credit(request_id)
                case CancelCame(id=request_id):
                    self._answerer.on_cancel(request_id)
                case PeerReady():
                    self._answerer.on_ready()
        for answer in self._connection.take_answers():
            self._send(answer)

    # -- what we ask ------------------------------------------------------------------------------

    async def stream(self, body: Body, silence_s: float) -> Request:
        """Open a request whose items are iterated; ``silence_s`` bounds the wait for each."""
        await self._room()
        while len(self._connection.open_asks) >= _MAX_ASKS:
            self._freed.clear()
            await self._freed.wait()
        request_id, frame = self._connection.request(body)
        request = Request(self, request_id, silence_s, getattr(body, "turn", ""))
        self._requests[request_id] = request
        self._send(frame)
        return request

    async def ask(self, body: Body, timeout_s: float) -> Any:
        """One question, one answer: the reply's body. Raises AskFailed; cancelled when we are."""
        async with await self.stream(body, timeout_s) as request:
            return await request.result()

    def grant(self, request_id: int, count: int) -> None:
        """Let core send ``count`` more items of our request."""
        if request_id in self._requests:
            self._send(self._connection.grant(request_id, count))

    def give_up(self, request_id: int) -> None:
        """Cancel our request and forget it; its closing frame is dropped when it comes."""
        if self._requests.pop(request_id, None) is not None:
            self._send(self._connection.cancel(request_id))

    # -- what we answer ---------------------------------------------------------------------------

    def credit(self, request_id: int) -> int:
        """Items that may be sent now for core's request."""
        return self._connection.credit(request_id)

    def item(self, request_id: int, body: Body) -> None:
        """Send one item; there must be credit."""
        self._send(self._connection.item(request_id, body))

    def reply(self, request_id: int, body: Body) -> None:
        """Close core's request with a result."""
        self._send(self._connection.reply(request_id, body))

    def error(self, request_id: int, code: ErrorCode, message: str, retry_after_s: int | None = None) -> None:
        """Close core's request with an error."""
        self._send(self._connection.error(request_id, code, message, retry_after_s))
