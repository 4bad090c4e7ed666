"""The partner of a rehearsal, and a worker that goes before it has read all that was on its way."""

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from jail.template.partner import Partner
from jail.wire.connection import Asked, Connection
from jail.wire.frames import MAX_FRAME_BYTES
from jail.wire.schema import Done
from jail.wire.zmtp import Zmtp

_LIMIT_S = 60.0


@contextmanager
def _worker(answers: int) -> Iterator[socket.socket]:
    """The partner's end of a worker that answers so many requests, and goes when the next is there."""
    edge, theirs = socket.socketpair()
    thread = threading.Thread(target=_answer, args=(theirs, answers))
    with closing(edge):
        thread.start()
        yield edge
    thread.join()


def _answer(sock: socket.socket, left: int) -> None:
    zmtp, connection = Zmtp(MAX_FRAME_BYTES), Connection("worker", 0.0, _LIMIT_S)
    with closing(sock):
        sock.settimeout(_LIMIT_S)
        sock.sendall(zmtp.outgoing())
        while not zmtp.ready:
            zmtp.feed(sock.recv(1))
            sock.sendall(zmtp.outgoing())
        sock.sendall(zmtp.encode(connection.hello("test")))
        while left or not connection.ready:
            # a byte at a time: what comes after the last answer stays unread
            for message in zmtp.feed(sock.recv(1)):
                for event in connection.receive(message):
                    if isinstance(event, Asked):
                        left -= 1
                        sock.sendall(zmtp.encode(connection.reply(event.id, Done())))
        # unread when this end closes: the partner's next read is an error, not the end of the stream
        assert select.select([sock], [], [], _LIMIT_S)[0]


def test_a_worker_that_was_told_to_go_may_leave_what_it_was_sent_unread() -> None:
    with _worker(answers=1) as edge:  # of a ping and a drain
        Partner(edge, turns=0).play()


def test_a_worker_that_goes_before_it_was_told_to_is_a_fault() -> None:
    with _worker(answers=0) as edge, pytest.raises(ConnectionResetError):
        Partner(edge, turns=0).play()
