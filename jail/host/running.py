"""One jail from its start to its end, however it is started; and what pipes and /proc say of bwrap."""

import array
import enum
import fcntl
import os
import select
import socket
import termios
from typing import Final, Protocol

MAX_STATUS_BYTES: Final = 8_192


class Phase(enum.Enum):
    """Where a jail stands."""

    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"


class RunningJail(Protocol):
    """A jail from the moment it was asked for, however it is started."""

    edge: socket.socket
    """Core's connected end; the owner of this object closes it or hands it on."""

    @property
    def phase(self) -> Phase:
        """Where it stands now."""
        ...

    @property
    def group(self) -> tuple[int, int] | None:
        """The process group it is started in: a pidfd of its leader, and :func:`jail.host.group.group_of`."""
        ...

    why: str
    """What there is to say of a jail that ended before it ran; may be empty."""

    @property
    def pids(self) -> tuple[int, ...]:
        """Children, or children to be, that :meth:`reaped` wants to hear of."""
        ...

    @property
    def fds(self) -> tuple[int, ...]:
        """Descriptors to poll for reading and errors; each event calls :meth:`step`."""
        ...

    @property
    def init_pidfd(self) -> int | None:
        """The jail's pid 1, once known."""
        ...

    @property
    def init_pid(self) -> int:
        """The number of that process on the host; 0 until known."""
        ...

    @property
    def spawn_s(self) -> float:
        """How long it took from request to RUNNING (seconds)."""
        ...

    @property
    def how(self) -> str:
        """How it ended: "exit 0", "signal 9"."""
        ...

    def step(self) -> None:
        """Do what can be done without waiting. Raises nothing; a failure ends the jail."""
        ...

    def release(self) -> None:
        """Let what is known now go on: the group, pid 1. Whoever has to know of it does.

        May be called at any time; has to be once at the beginning.
        """
        ...

    def reaped(self, pid: int, status: int) -> None:
        """A child of this jail's was waited for."""
        ...

    def kill(self) -> None:
        """SIGKILL for all of it."""
        ...

    def kill_hard(self) -> None:
        """The last rung, where that did not help."""
        ...

    def close(self) -> None:
        """Give back every descriptor."""
        ...


def read_too(end: int) -> int:
    """Reopen a pipe's writing end for both ways, and close it.

    bwrap then reads its own status too. Otherwise, were we killed, the signal for a pipe without readers
    would end it before it has released its child, which then waits for that for ever.
    """
    try:
        return os.open(f"/proc/self/fd/{end}", os.O_RDWR | os.O_CLOEXEC)
    finally:
        os.close(end)


def gate_is_taken(gate: int) -> bool:
    """Whether the reader of a pipe in error took the byte before it closed its end."""
    left = array.array("i", [0])
    fcntl.ioctl(gate, termios.FIONREAD, left)
    return left[0] == 0


def parent_of(pid: int) -> int:
    """A process's parent; OSError for one that is gone."""
    fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return int(os.read(fd, MAX_STATUS_BYTES).rpartition(b")")[2].split()[1])
    finally:
        os.close(fd)


def _events(fd: int, wanted: int) -> int:
    poll = select.poll()
    poll.register(fd, wanted)
    found = poll.poll(0)
    return found[0][1] if found else 0


def broken(fd: int) -> bool:
    """Whether a pipe's other end is closed, asked of a writing end."""
    return bool(_events(fd, 0) & select.POLLERR)


def readable(fd: int) -> bool:
    """Whether a descriptor can be read now; for a pidfd: whether the process has ended."""
    return bool(_events(fd, select.POLLIN))
