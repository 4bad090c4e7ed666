"""A reply that remembers what a service answered."""

import threading

from jail.wire.connection import STREAM_WINDOW
from jail.wire.schema import Body, ErrorCode, Failure, History, Message

WAIT_S = 10.0


class FakeReply:
    """Implements actors.service.Reply; counts credit like the connection does."""

    def __init__(self) -> None:
        self.items: list[Body] = []
        self.result: Body | None = None
        self.failure: Failure | None = None
        self.credit = STREAM_WINDOW
        self._changed = threading.Condition()

    def item(self, body: Body) -> None:
        with self._changed:
            assert not self.closed, "an item after the end"
            assert self.credit > 0, "an item without credit"
            self.credit -= 1
            self.items.append(body)
            self._changed.notify_all()

    def done(self, body: Body) -> None:
        with self._changed:
            assert not self.closed, "closed twice"
            self.result = body
            self._changed.notify_all()

    def fail(self, code: ErrorCode, message: str, retry_after_s: int | None = None) -> None:
        with self._changed:
            assert not self.closed, "closed twice"
            self.failure = Failure(code, message, retry_after_s)
            self._changed.notify_all()

    @property
    def closed(self) -> bool:
        return self.result is not None or self.failure is not None

    def grant(self, count: int) -> None:
        with self._changed:
            self.credit += count

    def wait_closed(self) -> "FakeReply":
        with self._changed:
            assert self._changed.wait_for(lambda: self.closed, WAIT_S), "never answered"
        return self

    def wait_items(self, count: int) -> bool:
        """Wait for so many items or for the end; whether it is the end."""
        with self._changed:
            there = self._changed.wait_for(lambda: self.closed or len(self.items) >= count, WAIT_S)
            assert there, "neither items nor an end"
            return self.closed

    def messages(self) -> list[Message]:
        """What a session.load brought."""
        found: list[Message] = []
        for item in self.items:
            assert isinstance(item, History)
            found += item.messages
        return found
