"""A handover: all of it or nothing."""

import socket

from jail.host.handover import Handover


def test_the_reader_gets_all_of_it_and_then_the_end() -> None:
    handover = Handover(b"filter")
    with socket.socket(fileno=handover.fd) as reader:
        assert handover.give()

        assert (reader.recv(100), reader.recv(100)) == (b"filter", b"")
        assert handover.give()  # once is enough


def test_the_reader_of_one_that_is_not_given_finds_the_end() -> None:
    handover = Handover(b"filter")
    with socket.socket(fileno=handover.fd) as reader:
        handover.close()

        assert reader.recv(100) == b""


def test_a_reader_that_is_gone_or_cannot_take_all_of_it_is_told_of() -> None:
    gone, full = Handover(b"filter"), Handover(b"x" * (64 << 20))
    socket.socket(fileno=gone.fd).close()
    with socket.socket(fileno=full.fd):
        assert not gone.give()
        assert not full.give()
