"""The edge: one thread on epoll that owns the sockets of every jail, and keeps time.

It turns bytes into whole messages and hands them on, a batch a wakeup; it looks into none. It
stops reading from a channel that has too many messages unacknowledged, which is the bound on the
inbox behind it. Writing is done by the caller's thread where the socket takes it at once (one
thread switch less on each hop), by the edge otherwise.
"""

import contextlib
import heapq
import itertools
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from actors.service import ActorsError
from jail.wire.errors import CertosaError, PeerFault

_READ_BYTES = 65_536
MAX_UNACKED = 32
"""Messages delivered and not yet acknowledged, above which a channel is not read."""
MAX_BACKLOG_BYTES = 4 << 20
"""Bytes waiting to be written, above which the other end counts as not reading."""
_STOP_TIMEOUT_S = 5.0


class Framer(Protocol):
    """Bytes to messages and back; jail.wire.zmtp.Zmtp is one."""

    def outgoing(self) -> bytes:
        """What the protocol itself has to send now."""
        ...

    def feed(self, data: bytes) -> list[Any]:
        """Bytes in, messages out; raises CertosaError for what cannot be one."""
        ...

    def encode(self, message: Any) -> bytes:
        """A message as bytes."""
        ...


class Channel:
    """One socket on the edge. Methods may be called from any thread.

    Made by :meth:`Edge.attach`; ``deliver(channel, messages)`` and ``closed(channel, error)`` are
    called on the edge's thread and must not block. ``closed`` comes exactly once, unless
    :meth:`close` was called before; ``error`` is None at the peer's orderly end.
    """

    def __init__(
        self,
        edge: "Edge",
        sock: socket.socket,
        framer: Framer,
        deliver: Callable[["Channel", list[Any]], None],
        closed: Callable[["Channel", CertosaError | None], None],
        max_unacked: int,
    ) -> None:
        self._edge = edge
        self._sock = sock
        self._framer = framer
        self._deliver = deliver
        self._closed_callback = closed
        self._max_unacked = max_unacked
        self._lock = threading.Lock()
        self._backlog: deque[memoryview] = deque()
        self._backlog_bytes = 0
        self._unacked = 0
        self._mask = select.EPOLLIN
        self._open = True

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._sock.fileno()

    def send(self, message: Any) -> None:
        """Send one message, now or as soon as the socket takes it. Silent once closed.

        A peer that leaves MAX_BACKLOG_BYTES unread is closed with PeerFault ``flood``.
        """
        self.send_bytes(self._framer.encode(message))

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are (already framed)."""
        overflow = False
        with self._lock:
            if not self._open:
                return
            rest = memoryview(data)
            if not self._backlog:
                rest = self._write_some(rest)
            if rest:
                self._backlog.append(rest)
                self._backlog_bytes += len(rest)
                overflow = self._backlog_bytes > MAX_BACKLOG_BYTES
                self._set_mask(self._mask | select.EPOLLOUT)
        if overflow:
            self._edge.fail(self, PeerFault("flood", "the peer does not read"))

    def ack(self, count: int) -> None:
        """Say that ``count`` delivered messages were dealt with."""
        with self._lock:
            self._unacked -= count
            if self._open and self._unacked <= self._max_unacked // 2:
                self._set_mask(self._mask | select.EPOLLIN)

    def close(self) -> None:
        """Close the socket; nothing is delivered from then on."""
        self._edge.drop(self)

    # -- the edge's own, on its thread -------------------------------------------------------------

    def on_events(self, mask: int) -> None:
        if mask & select.EPOLLOUT:
            self._flush()
        if mask & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
            self._read()

    def finish(self, error: CertosaError | None, report: bool) -> None:
        with self._lock:
            if not self._open:
                return
            self._open = False
            self._backlog.clear()
        self._edge.forget(self)
        self._sock.close()
        if report:
            self._closed_callback(self, error)

    def _read(self) -> None:
        try:
            data = self._sock.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self.finish(None, report=True)
            return
        try:
            messages = self._framer.feed(data)
        except CertosaError as error:
            self.finish(error, report=True)
            return
        if answer := self._framer.outgoing():
            self.send_bytes(answer)
        if messages:
            with self._lock:
                self._unacked += len(messages)
                if self._unacked >= self._max_unacked:
                    self._set_mask(self._mask & ~select.EPOLLIN)
            self._deliver(self, messages)

    def _flush(self) -> None:
        with self._lock:
            while self._backlog:
                head = self._backlog.popleft()
                rest = self._write_some(head)
                self._backlog_bytes -= len(head) - len(rest)
                if rest:
                    self._backlog.appendleft(rest)
                    return
            self._set_mask(self._mask & ~select.EPOLLOUT)

    def _write_some(self, data: memoryview) -> memoryview:
        """Write what the socket takes; an error shows again on the reading side."""
        try:
            return data[self._sock.send(data) :]
        except (BlockingIOError, InterruptedError):
            return data
        except OSError:
            return data[len(data) :]

    def _set_mask(self, mask: int) -> None:
        if mask != self._mask and self._open:
            self._mask = mask
            self._edge.watch(self, mask)


class Edge:
    """The thread. Start it, attach sockets, stop it; also a Timers for whoever needs one.

    Args:
        name: the thread's.
        on_crash: called on the edge's thread with an exception that a callback let through, a bug
            of ours; the thread ends after it. By default it is raised in the thread.
    """

    def __init__(self, name: str = "edge", on_crash: Callable[[BaseException], None] | None = None) -> None:
        self._on_crash = on_crash
        self._epoll = select.epoll()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake_fd, select.EPOLLIN)
        self._channels: dict[int, Channel] = {}
        self._lock = threading.Lock()
        self._calls: deque[Callable[[], None]] = deque()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Close every channel without a word and end the thread. Raises ActorsError past 5 s."""
        self._call(self._on_stop)
        if self._thread.is_alive():
            self._thread.join(_STOP_TIMEOUT_S)
        if self._thread.is_alive():
            raise ActorsError(f"the edge did not stop in {_STOP_TIMEOUT_S} s")

    def attach(
        self,
        sock: socket.socket,
        framer: Framer,
        deliver: Callable[["Channel", list[Any]], None],
        closed: Callable[["Channel", CertosaError | None], None],
        max_unacked: int = MAX_UNACKED,
    ) -> Channel:
        """Take over a connected stream socket; see :class:`Channel` for the callbacks."""
        sock.setblocking(False)
        channel = Channel(self, sock, framer, deliver, closed, max_unacked)
        with self._lock:
            self._channels[sock.fileno()] = channel
        if greeting := framer.outgoing():
            channel.send_bytes(greeting)
        self._call(lambda: self._register(channel))
        return channel

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call back on the edge's thread after ``delay_s`` seconds."""
        due = time.monotonic() + delay_s
        with self._lock:
            heapq.heappush(self._timers, (due, next(self._order), callback))
            first = self._timers[0][0] == due
        if first:
            self._wake()

    # -- for channels ------------------------------------------------------------------------------

    def fail(self, channel: Channel, error: CertosaError) -> None:
        """Close a channel and report ``error``, from any thread."""
        self._call(lambda: channel.finish(error, report=True))

    def drop(self, channel: Channel) -> None:
        """Close a channel unreported, from any thread."""
        self._call(lambda: channel.finish(None, report=False))

    def watch(self, channel: Channel, mask: int) -> None:
        """Change what is waited for; a channel not yet registered starts with its mask then."""
        # not yet registered, or closed meanwhile: then there is nothing to wait for
        with contextlib.suppress(OSError, ValueError):
            self._epoll.modify(channel.fileno(), mask)

    def forget(self, channel: Channel) -> None:
        """Take a channel off, on the edge's thread, before its socket closes."""
        fd = channel.fileno()
        with self._lock:
            if self._channels.get(fd) is channel:
                del self._channels[fd]
        with contextlib.suppress(FileNotFoundError):
            self._epoll.unregister(fd)

    # -- the thread ---------------------------------------------------------------------------------

    def _register(self, channel: Channel) -> None:
        with channel._lock:
            if channel._open:
                self._epoll.register(channel.fileno(), channel._mask)

    def _run(self) -> None:
        try:
            self._loop()
        except BaseException as error:
            if self._on_crash is None:
                raise
            self._on_crash(error)
        finally:
            self._close_all()

    def _loop(self) -> None:
        while not self._stopping:
            for fd, mask in self._epoll.poll(self._wait_s()):
                if fd == self._wake_fd:
                    os.eventfd_read(self._wake_fd)
                    continue
                with self._lock:
                    channel = self._channels.get(fd)
                if channel is not None:
                    channel.on_events(mask)
            self._run_calls()
            self._run_timers()

    def _close_all(self) -> None:
        for channel in list(self._channels.values()):
            channel.finish(None, report=False)
        with self._lock:  # a late wake must not write into whatever takes this number next
            self._epoll.close()
            os.close(self._wake_fd)
            self._wake_fd = -1

    def _wait_s(self) -> float:
        with self._lock:
            if self._calls:
                return 0.0
            if not self._timers:
                return -1.0
            return max(0.0, self._timers[0][0] - time.monotonic())

    def _run_calls(self) -> None:
        while True:
            with self._lock:
                if not self._calls:
                    return
                call = self._calls.popleft()
            call()

    def _run_timers(self) -> None:
        now = time.monotonic()
        while True:
            with self._lock:
                if not self._timers or self._timers[0][0] > now:
                    return
                _, _, callback = heapq.heappop(self._timers)
            callback()

    def _call(self, call: Callable[[], None]) -> None:
        with self._lock:
            self._calls.append(call)
        self._wake()

    def _wake(self) -> None:
        if threading.current_thread() is not self._thread:
            with self._lock:
                if self._wake_fd >= 0:
                    os.eventfd_write(self._wake_fd, 1)

    def _on_stop(self) -> None:
        self._stopping = True
