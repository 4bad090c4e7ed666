"""The edge thread, over real socket pairs."""

import contextlib
import queue
import socket
import threading
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from actors.channel import Bounds, Channel
from actors.edge import SHARE, Edge
from actors.fairness import PaceLimits
from jail.wire.errors import CertosaError, PeerFault

_LIMIT_S = 20.0
_BOUNDS = Bounds()
MAX_BACKLOG_BYTES = _BOUNDS.backlog_bytes


class Lines:
    """A framer of lines; "!" is a fault."""

    def __init__(self) -> None:
        self._rest = b""
        self.handled = 0
        self.more = False

    def outgoing(self) -> bytes:
        return b""

    def feed(self, data: bytes, most: int) -> list[bytes]:
        *lines, rest = (self._rest + data).split(b"\n")
        if b"!" in lines:
            raise PeerFault("encoding", "as told")
        lines, late = lines[:most], lines[most:]
        self._rest = b"".join(line + b"\n" for line in late) + rest
        self.handled, self.more = len(lines), bool(late)
        return lines

    def encode(self, message: bytes) -> bytes:
        return message + b"\n"


class End:
    """One attached channel, its far end, and what it delivered."""

    made: ClassVar[list["End"]] = []

    def __init__(self, edge: Edge, bounds: Bounds = _BOUNDS, name: str = "") -> None:
        mine, self.far = socket.socketpair()
        self.far.settimeout(_LIMIT_S)
        End.made.append(self)
        self.delivered: queue.Queue[list[Any]] = queue.Queue()
        self.ends: queue.Queue[CertosaError | None] = queue.Queue()
        self.channel: Channel = edge.attach(
            mine,
            Lines(),
            lambda _, messages: self.delivered.put(messages),
            lambda _, error: self.ends.put(error),
            bounds,
            name,
        )

    def take(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count:
            found += self.delivered.get(timeout=_LIMIT_S)
        return found


@pytest.fixture(autouse=True)
def far_ends() -> Iterator[None]:
    """Whatever a test comes to, its sockets are closed."""
    yield
    while End.made:
        End.made.pop().far.close()


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


def test_what_is_sent_past_the_bound_before_the_edge_can_close_it_is_not_kept(edge: Edge) -> None:
    end = End(edge)
    line = b"x" * (1 << 20)

    def send() -> None:  # as an actor does on the edge's own thread, which nobody else closes anything on
        for _ in range(50):
            end.channel.send(line)

    tracemalloc.start()
    edge.soon(send)
    error = end.ends.get(timeout=_LIMIT_S)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(error, PeerFault)
    assert most_bytes < 3 * MAX_BACKLOG_BYTES


def test_a_channel_with_too_much_unacknowledged_is_not_read_until_it_is(edge: Edge) -> None:
    end = End(edge, Bounds(unacked=4))
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


def test_what_was_read_already_comes_after_the_acknowledgement_without_another_byte(edge: Edge) -> None:
    end = End(edge, Bounds(unacked=4))
    end.far.sendall(b"".join(b"%d\n" % number for number in range(10)))
    assert end.take(4) == [b"0", b"1", b"2", b"3"]
    end.channel.ack(4)
    assert end.take(4) == [b"4", b"5", b"6", b"7"]
    end.channel.ack(4)
    assert end.take(2) == [b"8", b"9"]
    end.far.close()


def test_too_many_bytes_unacknowledged_hold_a_channel_as_too_many_messages_do(edge: Edge) -> None:
    end = End(edge, Bounds(unacked_bytes=1_000))
    long = b"x" * 1_500
    end.far.sendall(long + b"\n")
    assert end.take(1) == [long]
    end.far.sendall(b"next\n")
    quiet = End(edge)
    quiet.far.sendall(b"others go on\n")
    assert quiet.take(1) == [b"others go on"]
    assert end.delivered.empty()
    end.channel.ack(1)
    assert end.take(1) == [b"next"]
    end.far.close()
    quiet.far.close()


class Shouters:
    """Channels whose far ends never pause; each batch delivered is acknowledged at once."""

    def __init__(self, edge: Edge, count: int) -> None:
        self.order: queue.Queue[tuple[int, int]] = queue.Queue()
        self.stopped = threading.Event()
        self.fars: list[socket.socket] = []
        bounds = Bounds(pace=PaceLimits(1e9, 1 << 30, 1e9))  # of the jails' kind: it pays what it costs
        for number in range(count):
            mine, far = socket.socketpair()
            self.fars.append(far)
            edge.attach(mine, Lines(), self._taker(number), lambda *_: None, bounds, f"user{number}")
        self.threads = [threading.Thread(target=self._shout, args=(far,)) for far in self.fars]
        for thread in self.threads:
            thread.start()

    def _taker(self, number: int) -> Any:
        def deliver(channel: Channel, messages: list[bytes]) -> None:
            self.order.put((number, len(messages)))
            channel.ack(len(messages))

        return deliver

    def _shout(self, far: socket.socket) -> None:
        far.settimeout(0.1)
        while not self.stopped.is_set():
            with contextlib.suppress(TimeoutError):
                far.sendall(b"hey\n" * 1_000)

    def stop(self) -> None:
        self.stopped.set()
        for thread in self.threads:
            thread.join(_LIMIT_S)
        for far in self.fars:
            far.close()


def test_who_shouts_gets_a_share_a_round_and_somebody_quiet_is_heard_in_the_next(edge: Edge) -> None:
    shouters = Shouters(edge, 3)
    quiet = End(edge)
    try:
        for number in range(50):
            quiet.far.sendall(b"%d\n" % number)
            assert quiet.take(1) == [b"%d" % number]
            quiet.channel.ack(1)
        deadline_s = time.monotonic() + _LIMIT_S
        while min(one.frames for one in edge.served().values()) < 100 * SHARE:
            assert time.monotonic() < deadline_s, edge.served()
            time.sleep(0.01)
        served = edge.served()
        rounds = edge.totals().rounds
    finally:
        shouters.stop()
        quiet.far.close()
    assert all(one.frames <= SHARE * rounds for one in served.values()), "more than a share in a round"
    batches = [shouters.order.get_nowait() for _ in range(shouters.order.qsize())]
    assert max(count for _, count in batches) <= SHARE


def test_one_that_is_too_fast_is_slowed_down_and_loses_nothing(edge: Edge) -> None:
    end = End(edge, Bounds(unacked=1_000, pace=PaceLimits(per_s=200, burst=20, patience_s=60)), "ann")
    began_s = time.monotonic()
    end.far.sendall(b"".join(b"%d\n" % number for number in range(100)))
    assert end.take(100) == [b"%d" % number for number in range(100)]
    assert time.monotonic() - began_s > 0.3
    served = edge.served()["ann"]
    assert served.frames == 100
    assert served.slowed > 0
    assert edge.totals().slowed == served.slowed
    end.far.close()


def test_one_that_never_lets_up_is_ended_with_a_reason(edge: Edge) -> None:
    fast = End(edge, Bounds(unacked=1 << 20, pace=PaceLimits(per_s=200, burst=20, patience_s=0.3)))
    slow = End(edge, Bounds(unacked=1 << 20, pace=PaceLimits(per_s=200, burst=20, patience_s=0.3)))
    slow.far.sendall(b"hey\n" * 10)
    try:
        fast.far.sendall(b"hey\n" * 10_000)
        error = fast.ends.get(timeout=_LIMIT_S)
        slow.far.sendall(b"hey\n")
        assert len(slow.take(11)) == 11
    finally:
        fast.far.close()
        slow.far.close()
    assert isinstance(error, PeerFault)
    assert error.reason == "rate"


def test_messages_that_took_long_to_deal_with_are_paid_for(edge: Edge) -> None:
    bounds = Bounds(unacked=4, pace=PaceLimits(per_s=1_000, burst=1_000, patience_s=60))
    heavy, light = End(edge, bounds, "heavy"), End(edge, bounds, "light")
    for end, took_s in ((heavy, 1.0), (light, 0.000_1)):  # a second of CPU time is ten thousand frames
        for line in (b"first", b"second"):
            end.far.sendall(line + b"\n")
            assert end.take(1) == [line]
            end.channel.ack(1, took_s if line == b"first" else 0.0)
    deadline_s = time.monotonic() + _LIMIT_S
    while edge.served()["heavy"].slowed == 0:  # counted after what it was slowed for was delivered
        assert time.monotonic() < deadline_s
        time.sleep(0.001)
    assert edge.served()["light"].slowed == 0


def test_bytes_one_by_one_are_paid_for_as_well(edge: Edge) -> None:
    end = End(edge, Bounds(pace=PaceLimits(per_s=100, burst=20, patience_s=60)), "ann")
    for _ in range(60):
        before = edge.served()["ann"].visits
        end.far.sendall(b"x")
        deadline_s = time.monotonic() + _LIMIT_S
        while edge.served()["ann"].visits == before:
            assert time.monotonic() < deadline_s
            time.sleep(0)
    end.far.sendall(b"\n")
    assert end.take(1) == [b"x" * 60]
    assert edge.served()["ann"].slowed > 0
    end.far.close()


def test_a_held_peer_that_goes_is_read_out_and_reported(edge: Edge) -> None:
    end = End(edge, Bounds(unacked=4, pace=PaceLimits(per_s=1, burst=50, patience_s=60)))
    end.far.sendall(b"hey\n" * 200)
    assert end.take(4) == [b"hey"] * 4
    end.far.close()
    assert end.ends.get(timeout=_LIMIT_S) is None
    assert len(end.take(196)) == 196


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
