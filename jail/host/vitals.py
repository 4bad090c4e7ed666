"""What a service manager is told: that the server is ready, reloads, stops, and that it lives.

systemd's protocol is a datagram of lines to a Unix socket that the environment names (sd_notify(3)). It
is told that we live only while core and egress both answer: a spawner by itself serves nobody.
"""

import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, Protocol

_ROUNDS: Final = 4
"""So many rounds of questions fit in the time after which the manager takes us for dead."""
_SERVICES: Final = frozenset(("core", "egress"))


class Notifier:
    """Tells a service manager, if one listens; never waits and never fails.

    Args:
        environ: ``NOTIFY_SOCKET``; ``WATCHDOG_USEC`` and ``WATCHDOG_PID``.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        # "@": a name that no file system has
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self.watchdog_s = self._watchdog_s(environ) if address else 0.0
        self._serves = False

    @staticmethod
    def _watchdog_s(environ: Mapping[str, str]) -> float:
        """How often it wants to hear that we live, in seconds; 0: not at all."""
        if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
            return 0.0
        with suppress(ValueError):
            return max(0.0, int(environ.get("WATCHDOG_USEC", "0")) / 1e6)
        return 0.0

    def ready(self) -> None:
        """The server serves, for the first time or again."""
        self._serves = True
        self._tell("READY=1")

    def reloading(self) -> None:
        """A reload began; :meth:`reloaded` ends it. A server that is not ready yet says nothing of either."""
        if self._serves:
            self._tell(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1_000}")

    def reloaded(self) -> None:
        """A reload ended, well or not: what serves is ready."""
        if self._serves:
            self._tell("READY=1")

    def stopping(self) -> None:
        """The end began."""
        self._tell("STOPPING=1")

    def alive(self) -> None:
        """All of it answers."""
        self._tell("WATCHDOG=1")

    def _tell(self, words: str) -> None:
        if not self._address:
            return
        # a manager that does not listen any more is no reason to serve nobody
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.sendto(words.encode(), self._address)


class Clock(Protocol):
    """What the watchdog needs of the spawner's loop."""

    def later(self, delay_s: float, call: Callable[[], None]) -> object:
        """Call once, after a delay in seconds."""


class Watchdog:
    """Asks core and egress in turns of a quarter of the manager's time; one that is silent silences us.

    Args:
        ask: has both asked; :meth:`answered` is called for each that answers.
    """

    def __init__(self, loop: Clock, notifier: Notifier, ask: Callable[[], None]) -> None:
        self._loop, self._notifier, self._ask = loop, notifier, ask
        self._answers: set[str] = set()
        self._runs = False

    def begin(self) -> None:
        """Begin with the first question; harmless when it has begun, or the manager wants none of it."""
        if self._notifier.watchdog_s and not self._runs:
            self._runs = True
            self._round()

    def answered(self, service: str) -> None:
        """One of them answered."""
        self._answers.add(service)

    def _round(self) -> None:
        if self._answers >= _SERVICES:
            self._notifier.alive()
        self._answers.clear()
        self._ask()
        self._loop.later(self._notifier.watchdog_s / _ROUNDS, self._round)
