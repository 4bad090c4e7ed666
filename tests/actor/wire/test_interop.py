"""Our ZMTP against libzmq's: a bound PAIR, one bound to a descriptor it was handed, heartbeats."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from jail.wire.errors import PeerFault
from jail.wire.zmtp import Zmtp

TIMEOUT_S = 10
LIMIT = 1 << 20


class Plain:
    """Our end: a plain Unix socket."""

    def __init__(self, path: str) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(path)
        self.zmtp = Zmtp(LIMIT)
        self.got: list[bytes] = []
        self.sock.sendall(self.zmtp.outgoing())

    def pump(self) -> None:
        """One read, and what it calls for."""
        data = self.sock.recv(65_536)
        assert data, "libzmq closed the connection"
        self.got += self.zmtp.feed(data)
        self.sock.sendall(self.zmtp.outgoing())

    def receive(self, count: int) -> list[bytes]:
        """That many messages."""
        while len(self.got) < count:
            self.pump()
        return self.got


@pytest.fixture(params=["bound", "handed"])
def ends(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Plain, Any]]:
    """Our end and a libzmq PAIR, bound by path or through ZMQ_USE_FD."""
    path = str(tmp_path / "edge")
    context = zmq.Context()
    pair = context.socket(zmq.PAIR)
    pair.linger = 0
    pair.rcvtimeo = pair.sndtimeo = TIMEOUT_S * 1_000
    listener = socket.socket(socket.AF_UNIX)
    if request.param == "handed":
        listener.bind(path)
        listener.listen(1)
        pair.setsockopt(zmq.USE_FD, listener.detach())
    pair.setsockopt(zmq.HEARTBEAT_IVL, 50)
    pair.bind(f"ipc://{path}")
    listener.close()
    plain = Plain(path)
    yield plain, pair
    plain.sock.close()
    pair.close()
    context.term()


def test_messages_of_every_size_go_both_ways(ends: tuple[Plain, Any]) -> None:
    plain, pair = ends
    messages = [b"", b"x", b"y" * 255, b"z" * 256, b"w" * 70_000, bytes(LIMIT)]
    while not plain.zmtp.ready:
        plain.pump()

    for count, message in enumerate(messages, start=1):
        plain.sock.sendall(plain.zmtp.encode(message))
        assert pair.recv() == message
        pair.send(message)
        assert plain.receive(count)[-1] == message


def test_a_burst_keeps_its_order(ends: tuple[Plain, Any]) -> None:
    plain, pair = ends
    while not plain.zmtp.ready:
        plain.pump()
    burst = [b"%d" % n for n in range(500)]

    plain.sock.sendall(b"".join(map(plain.zmtp.encode, burst)))
    assert [pair.recv() for _ in burst] == burst
    for message in burst:
        pair.send(message)
    assert plain.receive(len(burst)) == burst


def test_heartbeats_of_libzmq_are_answered(ends: tuple[Plain, Any]) -> None:
    plain, pair = ends
    pongs = 0
    feed = plain.zmtp.outgoing

    def outgoing() -> bytes:
        nonlocal pongs
        data = feed()
        pongs += data.count(b"PONG")
        return data

    plain.zmtp.outgoing = outgoing  # type: ignore[method-assign]
    while pongs < 3:
        plain.pump()

    pair.send(b"still here")
    assert plain.receive(1) == [b"still here"]


def test_a_multipart_message_is_refused_at_its_first_part(ends: tuple[Plain, Any]) -> None:
    plain, pair = ends
    while not plain.zmtp.ready:
        plain.pump()

    pair.send_multipart([b"one", b"two"])

    with pytest.raises(PeerFault) as caught:
        plain.receive(1)
    assert caught.value.reason == "multipart"
    assert plain.got == []


def test_another_kind_of_socket_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "edge")
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        dealer.bind(f"ipc://{path}")
        plain = Plain(path)
        with plain.sock, pytest.raises(PeerFault) as caught:
            plain.receive(1)

    assert caught.value.reason == "command"


def test_a_second_peer_receives_nothing(ends: tuple[Plain, Any]) -> None:
    plain, pair = ends
    while not plain.zmtp.ready:
        plain.pump()
    second = socket.socket(socket.AF_UNIX)
    second.settimeout(TIMEOUT_S)
    second.connect(plain.sock.getpeername())
    zmtp = Zmtp(LIMIT)
    second.sendall(zmtp.outgoing())

    for n in range(20):  # as many round trips, and the second has had its time
        pair.send(b"for the first")
        assert plain.receive(n + 1)[-1] == b"for the first"
        plain.sock.sendall(plain.zmtp.encode(b"from the first"))
        assert pair.recv() == b"from the first"

    with second:
        second.setblocking(False)
        try:
            heard = second.recv(65_536)
        except (BlockingIOError, ConnectionResetError):
            heard = b""
    assert zmtp.feed(heard) == []
