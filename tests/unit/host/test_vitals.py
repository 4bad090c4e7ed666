"""A service manager hears that the server is ready and lives, and of no server that does not."""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from jail.host.egress_control import EgressControl
from jail.host.loop import Loop
from jail.host.messages import CoreReady, Ping, Pong, ToEgress, receive_message, send_message
from jail.host.vitals import Notifier, Watchdog


@pytest.fixture
def ear(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.setblocking(False)
        yield sock


@pytest.fixture
def environ(ear: socket.socket) -> dict[str, str]:
    return {"NOTIFY_SOCKET": ear.getsockname(), "WATCHDOG_USEC": "2000000"}


def heard(ear: socket.socket) -> list[str]:
    """What was said, a line each; the time of day of a reload left out."""
    lines = []
    while True:
        try:
            lines += ear.recv(1_024).decode().splitlines()
        except BlockingIOError:
            return [line for line in lines if not line.startswith("MONOTONIC_USEC=")]


class Clock:
    """Stands in for the loop: keeps what is to be called later."""

    def __init__(self) -> None:
        self.waits: list[tuple[float, Callable[[], None]]] = []

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        self.waits.append((delay_s, call))

    def pass_round(self) -> float:
        ((delay_s, call),) = self.waits
        self.waits.clear()
        call()
        return delay_s


def test_each_step_of_a_servers_life_is_told(ear: socket.socket, environ: dict[str, str]) -> None:
    notifier = Notifier(environ)

    notifier.ready()
    notifier.reloading()
    notifier.reloaded()
    notifier.alive()
    notifier.stopping()

    assert heard(ear) == ["READY=1", "RELOADING=1", "READY=1", "WATCHDOG=1", "STOPPING=1"]


def test_a_reload_before_the_start_is_over_makes_nothing_ready(
    ear: socket.socket, environ: dict[str, str]
) -> None:
    notifier = Notifier(environ)

    notifier.reloading()
    notifier.reloaded()

    assert heard(ear) == []


def test_an_abstract_address_is_one_without_a_file() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind("")  # the kernel chooses an abstract one
        ear.setblocking(False)

        Notifier({"NOTIFY_SOCKET": "@" + ear.getsockname()[1:].decode()}).ready()

        assert heard(ear) == ["READY=1"]


@pytest.mark.parametrize(
    "environ", [{}, {"NOTIFY_SOCKET": "/nonexistent/notify"}, {"NOTIFY_SOCKET": "vsock:2:7"}]
)
def test_a_manager_that_is_not_there_stops_nobody(environ: dict[str, str]) -> None:
    Notifier(environ).ready()


@pytest.mark.parametrize(
    ("more", "expected_s"),
    [
        ({}, 2.0),
        ({"WATCHDOG_PID": str(os.getpid())}, 2.0),
        ({"WATCHDOG_PID": str(os.getpid() + 1)}, 0.0),
        ({"WATCHDOG_USEC": "0"}, 0.0),
        ({"WATCHDOG_USEC": "soon"}, 0.0),
        ({"NOTIFY_SOCKET": ""}, 0.0),
    ],
)
def test_the_watchdogs_time_is_ours_only_if_it_is_meant_for_us(
    environ: dict[str, str], more: dict[str, str], expected_s: float
) -> None:
    assert Notifier(environ | more).watchdog_s == expected_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def begun(environ: dict[str, str], clock: Clock) -> Watchdog:
    watchdog = Watchdog(clock, Notifier(environ), lambda: None)
    watchdog.begin()
    return watchdog


def test_while_both_answer_the_manager_hears_four_times_in_its_time(
    ear: socket.socket, environ: dict[str, str], clock: Clock
) -> None:
    watchdog = begun(environ, clock)
    assert heard(ear) == []

    for _ in range(4):
        watchdog.answered("core")
        watchdog.answered("egress")
        assert clock.pass_round() == 0.5

    assert heard(ear) == ["WATCHDOG=1"] * 4


@pytest.mark.parametrize("lives", ["core", "egress"])
def test_one_that_is_silent_silences_us_until_it_answers(
    ear: socket.socket, environ: dict[str, str], clock: Clock, lives: str
) -> None:
    watchdog = begun(environ, clock)

    for _ in range(3):
        watchdog.answered(lives)
        watchdog.answered(lives)
        clock.pass_round()
    assert heard(ear) == []

    watchdog.answered("core")
    watchdog.answered("egress")
    clock.pass_round()
    assert heard(ear) == ["WATCHDOG=1"]


def test_each_round_asks_once_and_a_second_begin_asks_no_more(environ: dict[str, str], clock: Clock) -> None:
    asked: list[None] = []
    watchdog = Watchdog(clock, Notifier(environ), lambda: asked.append(None))

    watchdog.begin()
    watchdog.begin()
    clock.pass_round()

    assert len(asked) == 2


def test_nobody_is_asked_for_a_manager_that_has_no_watchdog(clock: Clock) -> None:
    Watchdog(clock, Notifier({}), lambda: pytest.fail("it asked")).begin()

    assert clock.waits == []


class End:
    """An EgressControl and what it told."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.told: list[str] = []
        self.control = EgressControl(
            loop, lambda: self.tell("pong"), self.mounts, lambda why: self.tell(f"fault: {why}")
        )

    def mounts(self, answer: object, fds: tuple[int, ...]) -> None:
        self.tell(f"{answer} with {len(fds)}")

    def tell(self, what: str) -> None:
        self.told.append(what)
        self.loop.stop()

    def close(self) -> None:
        self.control.close()
        self.loop.close()


@pytest.fixture
def end() -> Iterator[End]:
    with closing(End(Loop())) as made:
        yield made


def test_egress_is_asked_and_its_answer_is_heard(end: End) -> None:
    end.control.send(Ping())
    assert receive_message(end.control.theirs, ToEgress) == (Ping(), None)

    send_message(end.control.theirs, Pong())
    end.loop.run()

    assert end.told == ["pong"]


def test_an_egress_that_says_anything_else_is_not_heard_any_more(end: End) -> None:
    send_message(end.control.theirs, CoreReady())

    end.loop.run()

    (told,) = end.told
    assert told.startswith("fault: ")
    with pytest.raises(OSError, match="Bad file descriptor"):
        end.control.send(Ping())


def test_a_descriptor_with_the_answer_is_closed_and_no_answer(end: End) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as pipe:
        send_message(end.control.theirs, Pong(), writing)
        os.close(writing)

        end.loop.run()

        assert end.told == ["fault: a word came with a descriptor"]
        assert pipe.read() == b""  # nobody has its other end


def test_the_end_of_egress_is_no_fault_of_its_own(end: End) -> None:
    end.control.theirs.close()

    end.loop.run()

    assert end.told == ["fault: "]
