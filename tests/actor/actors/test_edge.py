"""The edge thread, over real socket pairs."""

import queue
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from actors.edge import MAX_BACKLOG_BYTES, Channel, Edge
from jail.wire.errors import CertosaError, PeerFault

_LIMIT_S = 10.0


class Lines:
    """A framer of lines; "!" is a fault."""

    def __init__(self) -> None:
        self._rest = b""

    def outgoing(self) -> bytes:
        return b""

    def feed(self, data: bytes) -> list[bytes]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if b"!" in lines:
            raise PeerFault("encoding", "as told")
        return lines

    def encode(self, message: bytes) -> bytes:
        return message + b"\n"


class End:
    """One attached channel, its far end, and what it delivered."""

    def __init__(self, edge: Edge, max_unacked: int = 32) -> None:
        mine, self.far = socket.socketpair()
        self.far.settimeout(_LIMIT_S)
        self.delivered: queue.Queue[list[Any]] = queue.Queue()
        self.ends: queue.Queue[CertosaError | None] = queue.Queue()
        self.channel: Channel = edge.attach(
            mine,
            Lines(),
            lambda _, messages: self.delivered.put(messages),
            lambda _, error: self.ends.put(error),
            max_unacked,
        )

    def take(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count:
            found += self.delivered.get(timeout=_LIMIT_S)
        return found


@pytest.fixture
def edge() -> Iterator[Edge]:
    edge = Edge()
    edge.start()
    yield edge
    edge.stop()


@pytest.fixture
def end(edge: Edge) -> Iterator[End]:
    end = End(edge)
    yield end
    end.far.close()


def test_messages_come_whole_and_in_order_however_the_bytes_fall(end: End) -> None:
    for piece in (b"on", b"e\ntw", b"o\nthree", b"\n"):
        end.far.sendall(piece)
    assert end.take(3) == [b"one", b"two", b"three"]


def test_sending_works_from_any_thread_and_past_a_full_socket(end: End) -> None:
    line = b"x" * 50_000

    def send() -> None:
        for _ in range(40):
            end.channel.send(line)

    sender = threading.Thread(target=send)
    sender.start()
    sender.join(_LIMIT_S)
    got = 0
    while got < 40 * 50_001:
        got += len(end.far.recv(1 << 20))
    assert got == 40 * 50_001


def test_a_reader_that_never_reads_is_bounded_and_closed(end: End) -> None:
    line = b"x" * 100_000
    sent = 0
    while end.ends.empty() and sent < 4 * MAX_BACKLOG_BYTES:
        end.channel.send(line)
        sent += len(line)
        time.sleep(0)
    error = end.ends.get(timeout=_LIMIT_S)
    assert isinstance(error, PeerFault)
    assert error.reason == "flood"
    assert sent < 2 * MAX_BACKLOG_BYTES


def test_a_channel_with_too_much_unacknowledged_is_not_read_until_it_is(edge: Edge) -> None:
    end = End(edge, max_unacked=4)
    for number in range(8):
        end.far.sendall(b"%d\n" % number)
        end.take(1) if number < 4 else None
    quiet = End(edge)
    quiet.far.sendall(b"others go on\n")
    assert quiet.take(1) == [b"others go on"]
    assert end.delivered.empty()
    end.channel.ack(4)
    assert end.take(4) == [b"4", b"5", b"6", b"7"]
    end.far.close()
    quiet.far.close()


def test_a_fault_is_reported_once_and_the_socket_closed(end: End) -> None:
    end.far.sendall(b"!\n")
    error = end.ends.get(timeout=_LIMIT_S)
    assert isinstance(error, PeerFault)
    assert end.far.recv(1) == b""
    end.channel.send(b"into the void")


def test_the_peers_end_is_reported_after_its_last_message(end: End) -> None:
    end.far.sendall(b"last\n")
    end.far.shutdown(socket.SHUT_WR)
    assert end.take(1) == [b"last"]
    assert end.ends.get(timeout=_LIMIT_S) is None


def test_a_closed_channel_says_nothing_more(edge: Edge, end: End) -> None:
    end.channel.close()
    assert end.far.recv(1) == b""
    other = End(edge)
    other.far.sendall(b"x\n")
    assert other.take(1) == [b"x"]
    assert end.ends.empty()
    other.far.close()


def test_timers_fire_in_order_of_their_time(edge: Edge) -> None:
    fired: queue.Queue[str] = queue.Queue()
    edge.call_later(0.04, lambda: fired.put("late"))
    edge.call_later(0.01, lambda: fired.put("early"))
    assert [fired.get(timeout=_LIMIT_S) for _ in range(2)] == ["early", "late"]


def test_a_descriptor_sent_along_is_ignored(end: End) -> None:
    with open("/dev/null", "rb") as file:
        socket.send_fds(end.far, [b"with a gift\n"], [file.fileno()])
    assert end.take(1) == [b"with a gift"]


def test_a_crash_in_a_callback_is_loud_and_closes_everything() -> None:
    crashes: queue.Queue[BaseException] = queue.Queue()
    edge = Edge(on_crash=crashes.put)
    edge.start()
    end = End(edge)

    def crash() -> None:
        raise RuntimeError("a bug")

    edge.call_later(0, crash)
    assert isinstance(crashes.get(timeout=_LIMIT_S), RuntimeError)
    assert end.far.recv(1) == b""
    end.far.close()
    edge.stop()
