"""A service manager hears from a real server what sd_notify(3) wants, as long as all of it lives."""

import os
import select
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.fakes.real_server import UNATTACKED, RealServer, real_server

_LIMIT_S = 60.0
_QUIET_S = 4.0
_WATCHDOG_S = 1.0  # four rounds in it


class Manager:
    """The end of systemd's."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.address = sock.getsockname()[1:].decode()

    def next(self, timeout_s: float) -> str | None:
        """The next word, without what goes with it; None if there is none in time."""
        ready, _, _ = select.select([self._sock], [], [], max(0.0, timeout_s))
        return self._sock.recv(1_024).decode().splitlines()[0] if ready else None

    def until(self, word: str) -> list[str]:
        """What was said up to this word, and it."""
        words: list[str] = []
        deadline_s = time.monotonic() + _LIMIT_S
        while word not in words:
            said = self.next(deadline_s - time.monotonic())
            assert said is not None, f"{word} never came after {words[-5:]}"
            words.append(said)
        return words

    def within(self, span_s: float) -> list[str]:
        """All that is said in that time."""
        words: list[str] = []
        deadline_s = time.monotonic() + span_s
        while (said := self.next(deadline_s - time.monotonic())) is not None:
            words.append(said)
        return words


@pytest.fixture
def manager() -> Iterator[Manager]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind("")  # an abstract address, chosen by the kernel
        yield Manager(sock)


@pytest.fixture
def server(manager: Manager) -> Iterator[RealServer]:
    as_systemd_would = (
        f"import os; os.environ['NOTIFY_SOCKET'] = '@{manager.address}'; "
        f"os.environ['WATCHDOG_USEC'] = '{_WATCHDOG_S * 1e6:.0f}'"
    )
    with real_server({}, before=f"{as_systemd_would}\n{UNATTACKED}") as running:
        yield running


@contextmanager
def stopped(server: RealServer, service: str) -> Iterator[None]:
    """It is there, and does nothing."""
    pid = server.pid(service)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_it_is_told_of_the_servers_life_and_of_a_part_that_hangs(
    server: RealServer, manager: Manager
) -> None:
    assert manager.until("READY=1") == ["READY=1"]
    manager.until("WATCHDOG=1")

    for service in ("core", "egress"):
        with stopped(server, service):
            manager.within(0.0)  # what was said before
            # two answers may have been on their way
            assert len(manager.within(_QUIET_S)) <= 2
        manager.until("WATCHDOG=1")

    server.process.send_signal(signal.SIGHUP)
    manager.until("RELOADING=1")
    manager.until("READY=1")
    assert server.logged("config_reloaded")

    assert server.stop() == 0
    manager.until("STOPPING=1")
