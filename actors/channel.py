"""One socket on the edge: its framing, what waits in either direction, and the bounds on both."""

import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from actors.fairness import Pace, PaceLimits
from jail.wire.errors import CertosaError, PeerFault

_READ_BYTES = 65_536
_FRAME_S = 50e-6
"""A frame whose handling takes longer than this costs more than one: some are a thousand times the work."""


class Framer(Protocol):
    """Bytes to messages and back; jail.wire.zmtp.Zmtp is one."""

    @property
    def more(self) -> bool:
        """Whether ``feed`` stopped at its limit: what it holds may be whole messages."""
        ...

    @property
    def handled(self) -> int:
        """Frames that the last ``feed`` took in, messages or not."""
        ...

    def outgoing(self) -> bytes:
        """What the protocol itself has to send now."""
        ...

    def feed(self, data: bytes, most: int) -> list[Any]:
        """Bytes in, messages out, of ``most`` frames; raises CertosaError for what cannot be one."""
        ...

    def encode(self, message: Any) -> bytes:
        """A message as bytes."""
        ...


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds on one channel.

    Args:
        unacked, unacked_bytes: messages delivered and not yet acknowledged, above which it is not read.
        backlog_bytes: waiting to be written; above it the other end counts as not reading.
        pace: how fast it is read, and when that is abuse; None: one of our own processes is at the other
            end, which is served in every round whatever it costs.
    """

    unacked: int = 32
    unacked_bytes: int = 2 << 20
    backlog_bytes: int = 4 << 20
    pace: PaceLimits | None = None


class Served(NamedTuple):
    """What a channel was read for: frames, bytes, visits of the edge, and how often it was held back."""

    frames: int = 0
    bytes: int = 0
    visits: int = 0
    slowed: int = 0


Held = Literal["pace", "unacked"]
"""Why a channel is not read: it is too fast, or what came before is still being dealt with."""


class Owner(Protocol):
    """What a channel asks of its edge."""

    def fail(self, channel: "Channel", error: CertosaError) -> None: ...
    def drop(self, channel: "Channel") -> None: ...
    def watch(self, channel: "Channel", mask: int) -> None: ...
    def forget(self, channel: "Channel") -> None: ...
    def resume(self, channel: "Channel") -> None: ...
    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None: ...


class Channel:
    """One socket on the edge. Methods may be called from any thread.

    Made by :meth:`actors.edge.Edge.attach`; ``deliver(channel, messages)`` and ``closed(channel, error)``
    are called on the edge's thread and must not block. ``closed`` comes exactly once, unless
    :meth:`close` was called before; ``error`` is None at the peer's orderly end.
    """

    def __init__(
        self,
        edge: Owner,
        sock: socket.socket,
        framer: Framer,
        deliver: Callable[["Channel", list[Any]], None],
        closed: Callable[["Channel", CertosaError | None], None],
        bounds: Bounds,
        name: str,
    ) -> None:
        self._edge = edge
        self._sock = sock
        self._framer = framer
        self._deliver = deliver
        self._closed_callback = closed
        self._bounds = bounds
        self._pace = Pace(bounds.pace, time.monotonic()) if bounds.pace is not None else None
        self._lock = threading.Lock()
        self._backlog: deque[memoryview] = deque()
        self._backlog_bytes = 0
        self._overflown = False  # it is to be closed, once the edge's thread comes to it
        self._unacked: deque[int] = deque()  # the sizes of what was delivered
        self._unacked_bytes = 0
        self._unpaid = 0  # what messages cost beyond one each, as their handling showed
        self._held: set[Held] = set()
        self._frames = self._bytes = self._visits = self._slowed = 0
        self.name = name
        self.mask = select.EPOLLIN
        self.open = True
        self.hung_up = False

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._sock.fileno()

    @property
    def served(self) -> Served:
        """What it was read for so far."""
        return Served(self._frames, self._bytes, self._visits, self._slowed)

    def send(self, message: Any) -> None:
        """Send one message, now or as soon as the socket takes it. Silent once closed.

        A peer that leaves too much unread is closed with PeerFault ``flood``.
        """
        self.send_bytes(self._framer.encode(message))

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are (already framed)."""
        overflow = False
        with self._lock:
            if not self.open or self._overflown:
                return
            rest = memoryview(data)
            if not self._backlog:
                rest = self._write_some(rest)
            if rest:
                self._backlog.append(rest)
                self._backlog_bytes += len(rest)
                overflow = self._overflown = self._backlog_bytes > self._bounds.backlog_bytes
                self._set_mask(self.mask | select.EPOLLOUT)
        if overflow:
            self._edge.fail(self, PeerFault("flood", "the peer does not read"))

    def ack(self, count: int, took_s: float = 0.0) -> None:
        """Say that the ``count`` oldest messages delivered were dealt with, and what CPU time it took."""
        with self._lock:
            self._unpaid += max(0, round(took_s / _FRAME_S) - count)
            for _ in range(min(count, len(self._unacked))):
                self._unacked_bytes -= self._unacked.popleft()
            go_on = (
                "unacked" in self._held
                and len(self._unacked) <= self._bounds.unacked // 2
                and self._unacked_bytes <= self._bounds.unacked_bytes // 2
            )
        if go_on:
            self._let_go("unacked")

    def close(self) -> None:
        """Close the socket; nothing is delivered from then on."""
        self._edge.drop(self)

    # -- the edge's own, on its thread -------------------------------------------------------------

    @property
    def readable(self) -> bool:
        """Whether it may be read at present. What a peer that is gone has left is bounded, and read out."""
        return self.open and (not self._held or self.hung_up)

    def finish(self, error: CertosaError | None, report: bool) -> None:
        """Close; ``report`` it, with an error or without."""
        with self._lock:
            if not self.open:
                return
            self.open = False
            self._backlog.clear()
        self._edge.forget(self)
        self._sock.close()
        if report:
            self._closed_callback(self, error)

    def serve(self, allowance: int) -> tuple[int, bool]:
        """Read, and deliver what is whole, of about ``allowance`` frames at most.

        Returns what it cost, and whether more is known to wait. A frame costs 1, and more where the handling
        of those before took long; a read that brought none costs 1, or single bytes would cost nothing.
        """
        data = b""
        if not self._framer.more:
            received = self._receive()
            if received is None:
                return 1, False
            data = received
        room = self._bounds.unacked - len(self._unacked)  # only this thread adds
        try:
            messages = self._framer.feed(data, max(1, min(allowance, room)))
        except CertosaError as error:
            self.finish(error, report=True)
            return 1, False
        with self._lock:
            cost, self._unpaid = max(1, self._framer.handled) + self._unpaid, 0
        self._visits += 1
        self._frames += self._framer.handled
        self._bytes += len(data)
        if answer := self._framer.outgoing():
            self.send_bytes(answer)
        if messages:
            self._hand_over(messages)
        if self._pace is not None and not self.hung_up:
            self._keep_pace(self._pace, cost, allowance)
        return (1 if self._pace is None else cost), self.readable and self._framer.more

    def flush(self) -> None:
        """Write what waits, as far as the socket takes it."""
        with self._lock:
            while self._backlog:
                head = self._backlog.popleft()
                rest = self._write_some(head)
                self._backlog_bytes -= len(head) - len(rest)
                if rest:
                    self._backlog.appendleft(rest)
                    return
            self._set_mask(self.mask & ~select.EPOLLOUT)

    def _receive(self) -> bytes | None:
        """What there is to read; None where there is nothing, or it was the end."""
        try:
            data = self._sock.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            data = b""
        if not data:
            self.finish(None, report=True)
            return None
        return data

    def _hand_over(self, messages: list[Any]) -> None:
        sizes = [len(message) if isinstance(message, bytes) else 0 for message in messages]
        with self._lock:
            self._unacked.extend(sizes)
            self._unacked_bytes += sum(sizes)
            if (
                len(self._unacked) >= self._bounds.unacked
                or self._unacked_bytes >= self._bounds.unacked_bytes
            ):
                self._hold("unacked")
        self._deliver(self, messages)

    def _keep_pace(self, pace: Pace, cost: int, enough: int) -> None:
        now_s = time.monotonic()
        wait_s = pace.spend(cost, now_s, enough)
        if not wait_s or not self.open:
            return
        if pace.abused(now_s):
            self.finish(PeerFault("rate", "more frames than its pace allows, without a pause"), report=True)
            return
        self._slowed += 1
        with self._lock:
            self._hold("pace")
        self._edge.call_later(wait_s, lambda: self._let_go("pace"))

    def _hold(self, why: Held) -> None:
        """Read no more for now; with the lock held."""
        self._held.add(why)
        self._set_mask(self.mask & ~select.EPOLLIN)

    def _let_go(self, why: Held) -> None:
        with self._lock:
            self._held.discard(why)
            if self._held or not self.open:
                return
            self._set_mask(self.mask | select.EPOLLIN)
        if self._framer.more:
            self._edge.resume(self)  # what was read already wakes nobody

    def _write_some(self, data: memoryview) -> memoryview:
        """Write what the socket takes; an error shows again on the reading side."""
        try:
            return data[self._sock.send(data) :]
        except (BlockingIOError, InterruptedError):
            return data
        except OSError:
            return data[len(data) :]

    def _set_mask(self, mask: int) -> None:
        if mask != self.mask and self.open:
            self.mask = mask
            self._edge.watch(self, mask)
