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


def fill(hub: HubProcess, held: ExitStack) -> list[socket.socket]:
    """As many connections as there may be; one of the fixture's may still be about to go."""
    inside: list[socket.socket] = []
    deadline_s = time.monotonic() + TIMEOUT_S
    while len(inside) < MOST:
        assert time.monotonic() < deadline_s
        sock = held.enter_context(connect(hub))
        if answered(sock):
            inside.append(sock)
    return inside


def test_one_connection_too_many_is_closed_and_those_inside_go_on(small: HubProcess) -> None:
    with ExitStack() as held, capture_logs() as logs:
        inside = fill(small, held)
        for _ in range(3):
            with connect(small) as outside:
                assert not answered(outside)
        assert all(answered(sock) for sock in inside)
        # the operator can still look in, and is told once
        assert PlainClient(small.admin_url).ask("GET", "/healthz").status == 200
        assert [log["event"] for log in logs].count("connections_refused") == 1


def test_there_is_room_again_when_one_leaves(small: HubProcess) -> None:
    with ExitStack() as held:
        inside = fill(small, held)
        inside[0].close()
        deadline_s = time.monotonic() + TIMEOUT_S
        while True:
            with connect(small) as another:
                if answered(another):
                    return
            assert time.monotonic() < deadline_s
