"""Connections have a bound; those inside go on, and there is room again when some leave."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.fakes.hub_process import HubProcess
from tests.fakes.plain_client import TIMEOUT_S, PlainClient

MOST = 16
ASK = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[HubProcess]:
    hub = HubProcess(tmp_path, max_connections=MOST)
    yield hub
    hub.close()


def connect(hub: HubProcess) -> socket.socket:
    return socket.create_connection(hub.address, timeout=TIMEOUT_S)


def answered(sock: socket.socket) -> bool:
    try:
        sock.sendall(ASK)
        return sock.recv(4_096).startswith(b"HTTP/1.1 200")
    except ConnectionError:
        return False


def chatting(hub: HubProcess, held: ExitStack) -> socket.socket:
    """A connection whose request was let in, and is not over: the end of its body is held back."""
    sock = held.enter_context(connect(hub))
    sock.sendall(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer token-alice\r\n"
        b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    )
    assert sock.recv(4_096).startswith(b"HTTP/1.1 100")
    return sock


def ended(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except ConnectionError:
        return True


def test_a_connection_on_which_nothing_is_asked_makes_room_for_another(small: HubProcess) -> None:
    """Nobody needs a token to hold connections open, and one address could hold all there are."""
    with ExitStack() as held, capture_logs() as logs:
        working = chatting(small, held)
        idle = [held.enter_context(connect(small)) for _ in range(MOST - 1)]
        assert all(answered(sock) for sock in idle)
        half = held.enter_context(connect(small))
        half.sendall(b"GET /healthz HTTP/1.1\r\nX-")
        assert ended(idle[0]), "the one that was idle longest"
        for _ in range(3 * MOST):
            assert answered(held.enter_context(connect(small)))
        assert ended(half)
        working.sendall(b"{}")
        assert working.recv(4_096).startswith(b"HTTP/1.1 400")
        # the operator is told once
        assert [log["event"] for log in logs].count("connections_full") == 1


def test_one_too_many_of_those_that_work_is_closed_and_there_is_room_when_one_leaves(
    small: HubProcess,
) -> None:
    with ExitStack() as held:
        working = [chatting(small, held) for _ in range(MOST)]
        for _ in range(3):
            with connect(small) as outside:
                assert not answered(outside)
        # the operator can still look in
        assert PlainClient(small.admin_url).ask("GET", "/healthz").status == 200
        working[0].close()
        deadline_s = time.monotonic() + TIMEOUT_S
        while True:
            with connect(small) as another:
                if answered(another):
                    return
            assert time.monotonic() < deadline_s
