"""Control messages: one datagram each, with at most the descriptor that belongs to it."""

import os
import socket
from collections.abc import Iterator

import msgspec
import pytest

from jail.host import messages
from jail.host.messages import HostError, receive_message, send_message

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with a, b:
        yield a, b


@pytest.mark.parametrize(
    "message",
    [
        messages.StartJail(1, "alice", 1_900_001_000),
        messages.KillJail(2),
        messages.PrepareUser(3, "bob", 0),
        messages.RemoveUser(4, "bob", 0),
        messages.CoreReady(),
    ],
)
def test_a_request_arrives_as_it_was_sent(pair: Pair, message: msgspec.Struct) -> None:
    send_message(pair[0], message)

    assert receive_message(pair[1], messages.FromCore) == (message, None)


def test_a_descriptor_comes_along(pair: Pair) -> None:
    read, write = os.pipe()
    send_message(pair[0], messages.JailStarted(1, 0.5), write)
    os.close(write)

    received = receive_message(pair[1], messages.ToCore)
    assert received is not None
    message, fd = received
    assert message == messages.JailStarted(1, 0.5)
    assert fd is not None
    os.write(fd, b"x")
    assert os.read(read, 1) == b"x"
    os.close(fd)
    os.close(read)


@pytest.mark.parametrize(
    "data",
    [b"\xc1", b"\x80", b"[]", msgspec.msgpack.encode({"type": "StartJail"}),
     msgspec.msgpack.encode({"type": "Nothing"}),
     msgspec.msgpack.encode({"type": "KillJail", "life": 0}),
     msgspec.msgpack.encode({"type": "KillJail", "life": True}),
     msgspec.msgpack.encode({"type": "KillJail", "life": 1, "more": 2}),
     msgspec.msgpack.encode({"type": "StartJail", "life": 1, "user": "../x", "host_uid": 0}),
     msgspec.msgpack.encode({"type": "StartJail", "life": 1, "user": "a", "host_uid": -1}),
     b"x" * 20_000],
)  # fmt: skip
def test_what_is_no_request_is_refused_and_its_descriptor_closed(pair: Pair, data: bytes) -> None:
    before = len(os.listdir("/proc/self/fd"))
    socket.send_fds(pair[0], [data], [0])

    with pytest.raises(HostError):
        receive_message(pair[1], messages.FromCore)
    assert len(os.listdir("/proc/self/fd")) == before


def test_more_descriptors_than_one_are_refused(pair: Pair) -> None:
    before = len(os.listdir("/proc/self/fd"))
    socket.send_fds(pair[0], [msgspec.msgpack.encode(messages.CoreReady())], [0, 1, 2, 2])

    with pytest.raises(HostError):
        receive_message(pair[1], messages.FromCore)
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_end_is_none(pair: Pair) -> None:
    pair[0].shutdown(socket.SHUT_WR)

    assert receive_message(pair[1], messages.FromCore) is None
