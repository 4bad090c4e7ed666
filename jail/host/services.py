"""Core and egress as the spawner sees them: what to start, and one running process of it."""

import os
import signal
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from jail.host.loop import Loop, Timer
from jail.host.process import FIRST_FD, Identity, Program, start
from jail.host.restart import RestartPolicy

_TERM_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """A service to keep running.

    Args:
        name: for the log.
        argv: absolute program first; ``--FLAG NUMBER`` pairs are appended.
        identity: its uid and gid; None: the spawner's own, for an ordinary user.
        env: its whole environment.
        fds: descriptors it inherits at every start, by flag (``hub`` becomes ``--hub NUMBER``).
            They stay the caller's.
    """

    name: str
    argv: tuple[str, ...]
    identity: Identity | None
    env: Mapping[str, str] = field(default_factory=dict)
    fds: Mapping[str, int] = field(default_factory=dict)


class ServiceProcess:
    """A service, started again and again by its owner; at most one process at a time."""

    def __init__(self, loop: Loop, spec: ServiceSpec, guard: Callable[[int], None]) -> None:
        self._loop = loop
        self._guard = guard
        self.spec = spec
        self._mine: tuple[int, ...] = ()
        self.policy = RestartPolicy()
        self.pid: int | None = None
        self.pidfd: int | None = None
        self.wanted_dead = False
        self._timer: Timer | None = None

    def start(self, own: Mapping[str, int]) -> None:
        """Start it with ``own`` descriptors beside the spec's. Raises HostError."""
        fds = {**own, **self.spec.fds}
        flags = [
            text
            for number, flag in enumerate(fds, FIRST_FD)
            for text in (f"--{flag}", str(number))
        ]  # fmt: skip
        self.pid = start(
            Program(
                argv=(*self.spec.argv, *flags),
                env=self.spec.env,
                fds=tuple(fds.values()),
                identity=self.spec.identity,
                output_fd=1,
                error_fd=2,
                no_new_privs=True,
            )
        )
        self.pidfd = os.pidfd_open(self.pid)
        self.wanted_dead = False
        self._guard(self.pidfd)

    def end(self, term_s: float = _TERM_S) -> None:
        """SIGTERM, and SIGKILL after ``term_s`` seconds (at once for 0). Its exit is no failure."""
        self.wanted_dead = True
        self._cancel()
        if term_s <= 0:
            self._signal(signal.SIGKILL)
        elif self.pid is not None:
            self._signal(signal.SIGTERM)
            self._timer = self._loop.later(term_s, lambda: self._signal(signal.SIGKILL))

    def use(self, fds: Mapping[str, int], replaceable: Collection[str]) -> None:
        """Start it with these from now on, which are taken over, instead of all that are ``replaceable``."""
        old, self._mine = self._mine, tuple(fds.values())
        kept = {name: fd for name, fd in self.spec.fds.items() if name not in replaceable}
        self.spec = replace(self.spec, fds={**kept, **fds})
        for fd in old:
            os.close(fd)

    def forget(self) -> None:
        """Close what was taken over."""
        for fd in self._mine:
            os.close(fd)
        self._mine = ()

    def signal(self, number: int) -> None:
        """Send a signal, if it runs."""
        self._signal(number)

    def reaped(self, pid: int) -> bool:
        """Whether the child that was waited for is this one, which then runs no more."""
        if pid != self.pid or self.pidfd is None:
            return False
        self._cancel()
        os.close(self.pidfd)
        self.pid = self.pidfd = None
        return True

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _signal(self, number: int) -> None:
        if self.pidfd is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, number)
