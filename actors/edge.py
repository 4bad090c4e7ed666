"""The edge: one thread on epoll that owns the sockets of every jail, and keeps time.

It turns bytes into whole messages and hands them on, a batch a wakeup; it looks into none. Channels that
have something to read are served in rounds, each its share (actors/fairness.py). It stops reading from one
that is too fast, or has too many messages unacknowledged, which is the bound on the inbox behind it
(actors/channel.py). Writing is done by the caller's thread where the socket takes it at once (one
thread switch less on each hop), by the edge otherwise. Between the rounds it runs what it is given: the
user actors, of which it is the host (actors/hosted.py).
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
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

from actors.channel import Bounds, Channel, Framer, Served
from actors.fairness import Shares
from actors.service import ActorsError
from jail.wire.errors import CertosaError

SHARE = 16
"""Frames of one jail in a round: what a neighbour waits for, and what a wakeup of an actor is worth."""
_STOP_TIMEOUT_S = 5.0


class Totals(NamedTuple):
    """What the edge has read since its start. ``rounds``: so often everybody who waited had a turn;
    ``slowed``: so often a jail was not read for a while because it was too fast."""

    frames: int
    bytes: int
    rounds: int
    slowed: int


_OURS = Bounds()


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
        self._sleeping = False
        self._channels: dict[int, Channel] = {}
        self._shares: Shares[Channel] = Shares(SHARE)
        self._rounds = 0
        self._past = Totals(0, 0, 0, 0)  # of channels that are closed
        self._lock = threading.Lock()
        self._calls: deque[Callable[[], None]] = deque()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._stopping = False
        self._aside = ThreadPoolExecutor(1, f"{name}-aside")
        self._thread = threading.Thread(target=self._run, name=name)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Close every channel without a word and end the thread. Raises ActorsError past 5 s."""
        self.soon(self._on_stop)
        if self._thread.is_alive():
            self._thread.join(_STOP_TIMEOUT_S)
        if self._thread.is_alive():
            raise ActorsError(f"the edge did not stop in {_STOP_TIMEOUT_S} s")
        self._aside.shutdown(wait=False, cancel_futures=True)

    def attach(
        self,
        sock: socket.socket,
        framer: Framer,
        deliver: Callable[["Channel", list[Any]], None],
        closed: Callable[["Channel", CertosaError | None], None],
        bounds: Bounds = _OURS,
        name: str = "",
    ) -> Channel:
        """Take over a connected stream socket; see :class:`Channel` for the callbacks.

        ``name`` is what :meth:`served` calls it.
        """
        sock.setblocking(False)
        channel = Channel(self, sock, framer, deliver, closed, bounds, name)
        with self._lock:
            self._channels[sock.fileno()] = channel
        if greeting := framer.outgoing():
            channel.send_bytes(greeting)
        self.soon(lambda: self._register(channel))
        return channel

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call back on the edge's thread after ``delay_s`` seconds."""
        due = time.monotonic() + delay_s
        with self._lock:
            heapq.heappush(self._timers, (due, next(self._order), callback))
            if self._timers[0][0] == due:
                self._wake()

    def soon(self, call: Callable[[], None]) -> None:
        """See :class:`actors.hosted.Host`: after the sockets that can be read already."""
        with self._lock:
            self._calls.append(call)
            self._wake()

    def aside(self, call: Callable[[], None]) -> None:
        """See :class:`actors.hosted.Host`."""
        with contextlib.suppress(RuntimeError):  # stopped
            self._aside.submit(call).add_done_callback(self._on_aside_done)

    def _on_aside_done(self, done: "Future[None]") -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            self.soon(partial(_raise, error))  # as loud as on the edge's own thread

    def served(self) -> dict[str, Served]:
        """What each channel that has a name was read for so far."""
        with self._lock:
            return {channel.name: channel.served for channel in self._channels.values() if channel.name}

    def totals(self) -> Totals:
        """What all channels were read for, those that are closed too."""
        with self._lock:
            now = [channel.served for channel in self._channels.values()]
            past = self._past
        return Totals(
            past.frames + sum(one.frames for one in now),
            past.bytes + sum(one.bytes for one in now),
            self._rounds,
            past.slowed + sum(one.slowed for one in now),
        )

    # -- for channels ------------------------------------------------------------------------------

    def fail(self, channel: Channel, error: CertosaError) -> None:
        """Close a channel and report ``error``, from any thread."""
        self.soon(lambda: channel.finish(error, report=True))

    def drop(self, channel: Channel) -> None:
        """Close a channel unreported, from any thread."""
        self.soon(lambda: channel.finish(None, report=False))

    def watch(self, channel: Channel, mask: int) -> None:
        """Change what is waited for; a channel not yet registered starts with its mask then."""
        # not yet registered, or closed meanwhile: then there is nothing to wait for
        with contextlib.suppress(OSError, ValueError):
            self._epoll.modify(channel.fileno(), mask)

    def resume(self, channel: Channel) -> None:
        """Serve a channel again that holds what was read before, from any thread."""
        self.soon(lambda: self._want(channel))

    def forget(self, channel: Channel) -> None:
        """Take a channel off, on the edge's thread, before its socket closes."""
        fd = channel.fileno()
        self._shares.drop(channel)
        with self._lock:
            if self._channels.get(fd) is channel:
                del self._channels[fd]
                past, one = self._past, channel.served
                self._past = Totals(
                    past.frames + one.frames, past.bytes + one.bytes, 0, past.slowed + one.slowed
                )
        with contextlib.suppress(FileNotFoundError):
            self._epoll.unregister(fd)

    # -- the thread ---------------------------------------------------------------------------------

    def _register(self, channel: Channel) -> None:
        with channel._lock:
            if channel.open:
                self._epoll.register(channel.fileno(), channel.mask)

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
            ready = self._epoll.poll(self._wait_s())
            self._sleeping = False
            for fd, mask in ready:
                if fd == self._wake_fd:
                    os.eventfd_read(self._wake_fd)
                    continue
                with self._lock:
                    channel = self._channels.get(fd)
                if channel is not None:
                    self._on_events(channel, mask)
            self._serve_round()
            self._run_calls()
            self._run_timers()

    def _on_events(self, channel: Channel, mask: int) -> None:
        if mask & select.EPOLLOUT:
            channel.flush()
        if mask & (select.EPOLLHUP | select.EPOLLERR):
            channel.hung_up = True
        if mask & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
            self._want(channel)

    def _want(self, channel: Channel) -> None:
        if channel.readable:
            self._shares.wake(channel)

    def _serve_round(self) -> None:
        """Give everybody who waits a turn; then the sockets are looked at again."""
        shares = self._shares
        self._rounds += bool(shares)
        for _ in range(len(shares)):
            turn = shares.next()
            if turn is None:
                return
            channel, allowance = turn
            cost, more = channel.serve(allowance) if channel.readable else (0, False)
            if channel.open:
                shares.served(channel, cost, more)

    def _close_all(self) -> None:
        for channel in list(self._channels.values()):
            channel.finish(None, report=False)
        with self._lock:  # a late wake must not write into whatever takes this number next
            self._epoll.close()
            os.close(self._wake_fd)
            self._wake_fd = -1

    def _wait_s(self) -> float:
        with self._lock:
            if self._calls or self._shares:
                return 0.0
            self._sleeping = True
            if not self._timers:
                return -1.0
            return max(0.0, self._timers[0][0] - time.monotonic())

    def _run_calls(self) -> None:
        """Run what waits now; what that leads to comes after the sockets."""
        with self._lock:
            calls, self._calls = self._calls, deque()
        for call in calls:
            call()

    def _run_timers(self) -> None:
        now = time.monotonic()
        while True:
            with self._lock:
                if not self._timers or self._timers[0][0] > now:
                    return
                _, _, callback = heapq.heappop(self._timers)
            callback()

    def _wake(self) -> None:
        """Have the thread look again, if it sleeps; with the lock held."""
        if self._sleeping:
            self._sleeping = False
            if self._wake_fd >= 0:
                os.eventfd_write(self._wake_fd, 1)

    def _on_stop(self) -> None:
        self._stopping = True


def _raise(error: BaseException) -> None:
    raise error
