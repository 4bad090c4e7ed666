"""The worker's ZeroMQ socket on the event loop: frames in, frames out, and the peer's end.

The PAIR binds the listening descriptor the worker was handed, so there is one peer at most, ever,
and its end is ours. libzmq's descriptor is edge-triggered: EVENTS is looked at again after every
receive and every send (http://api.zeromq.org/4-3:zmq-getsockopt, ZMQ_FD).
"""

import asyncio
import os
import socket
import struct
from collections import deque
from collections.abc import Callable

import zmq

from jail.wire.errors import PeerFault
from jail.wire.frames import MAX_FRAME_BYTES

_HIGH_WATER = 32  # frames libzmq queues each way, besides what the kernel holds
_MAX_SOCKETS = 8  # the PAIR and its monitor's two ends, and some to spare
_BATCH = 64  # frames handled before other callbacks of the loop get a turn
_OUTBOX_BYTES = 4 * MAX_FRAME_BYTES  # past this, whoever produces has to wait
_ENDED = (
    zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)


class Port:
    """One PAIR socket. All of it runs on the loop's thread.

    Args:
        loop: the running loop.
        fd: a listening AF_UNIX stream socket; taken over.
        on_frame: called with each frame; PeerFault from it reaches ``on_fault``.
        on_end: called once, when the peer has gone.
        on_fault: called with the peer's fault, after which no frame is delivered.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        fd: int,
        on_frame: Callable[[bytes], None],
        on_end: Callable[[], None],
        on_fault: Callable[[PeerFault], None],
    ) -> None:
        self._loop = loop
        self._on_frame, self._on_end, self._on_fault = on_frame, on_end, on_fault
        self._outbox: deque[bytes] = deque()
        self._outbox_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._scheduled = self._cranking = False
        self._closed = False
        self._context = zmq.Context(io_threads=1)
        self._context.set(zmq.MAX_SOCKETS, _MAX_SOCKETS)  # a table is made for as many
        self._socket: zmq.Socket[bytes] = self._context.socket(zmq.PAIR)
        self._monitor = self._bind(fd)
        loop.add_reader(self._socket.fileno(), self._crank)
        loop.add_reader(self._monitor.fileno(), self._on_monitor)
        # edges that came before the readers were there
        loop.call_soon(self._on_monitor)
        self._schedule()

    def _bind(self, fd: int) -> "zmq.Socket[bytes]":
        os.set_inheritable(fd, False)  # no tool may inherit the jail's edge
        with socket.socket(fileno=os.dup(fd)) as listener:
            address = listener.getsockname()
        path = os.fsdecode(address) if isinstance(address, bytes) else str(address)
        if path.startswith("\0"):
            path = "@" + path[1:]
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.RCVHWM, _HIGH_WATER),
            (zmq.SNDHWM, _HIGH_WATER),
            (zmq.MAXMSGSIZE, MAX_FRAME_BYTES),
            (zmq.USE_FD, fd),
        ):
            self._socket.setsockopt(option, value)
        monitor = self._socket.get_monitor_socket(_ENDED)
        monitor.setsockopt(zmq.LINGER, 0)
        self._socket.bind(f"ipc://{path}")
        return monitor

    def send(self, frame: bytes) -> None:
        """Send a frame, now or as soon as the socket takes it."""
        if not self._outbox and not self._closed and self._sent_now(frame):
            return
        self._outbox.append(frame)
        self._outbox_bytes += len(frame)
        if self._outbox_bytes > _OUTBOX_BYTES:
            self._room.clear()
        self._schedule()

    async def room(self) -> None:
        """Wait until the outbox is below its bound; whoever produces calls it before sending."""
        await self._room.wait()

    def close(self, linger_ms: int) -> None:
        """Close the socket; what is queued has ``linger_ms`` to leave (0: it is dropped)."""
        if self._closed:
            return
        if linger_ms:
            self._crank()
        self._closed = True
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_reader(self._monitor.fileno())
        self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close(linger_ms)
        self._context.term()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._crank)

    def _sent_now(self, frame: bytes) -> bool:
        """Send at once if nothing is before it: a round of the loop less for each frame."""
        try:
            self._socket.send(frame, zmq.NOBLOCK)
        except zmq.Again:
            return False
        if not self._cranking and _events(self._socket) & zmq.POLLIN:
            self._schedule()  # sending may have used up the edge that says so
        return True

    def _crank(self) -> None:
        """Receive and send all that can be now, at most a batch."""
        self._scheduled, self._cranking = False, True
        try:
            self._move()
        finally:
            self._cranking = False

    def _move(self) -> None:
        for _ in range(_BATCH):
            if self._closed:
                return
            events = _events(self._socket)
            if self._outbox and events & zmq.POLLOUT:
                self._socket.send(self._outbox[0], zmq.NOBLOCK)
                self._sent()
            elif events & zmq.POLLIN:
                if not self._receive_one():
                    return
            else:
                return
        self._schedule()

    def _sent(self) -> None:
        self._outbox_bytes -= len(self._outbox.popleft())
        if self._outbox_bytes <= _OUTBOX_BYTES // 2:
            self._room.set()

    def _receive_one(self) -> bool:
        frame = self._socket.recv(zmq.NOBLOCK)
        try:
            if self._socket.getsockopt(zmq.RCVMORE):
                raise PeerFault("multipart", "messages have one part here")
            self._on_frame(frame)
        except PeerFault as fault:
            self._on_fault(fault)
            return False
        return True

    def _on_monitor(self) -> None:
        while not self._closed and _events(self._monitor) & zmq.POLLIN:
            head: bytes = self._monitor.recv_multipart(zmq.NOBLOCK)[0]
            event, _ = struct.unpack("=Hi", head)
            if event & _ENDED:
                self._on_end()
                return


def _events(socket_: "zmq.Socket[bytes]") -> int:
    events = socket_.getsockopt(zmq.EVENTS)
    assert isinstance(events, int)
    return events
