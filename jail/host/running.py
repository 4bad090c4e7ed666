"""One jail from its start to its end, followed without waiting: the caller owns the loop.

    STARTING --bwrap named pid 1, limits are set, the gate is opened--> (bwrap builds the jail)
             --the gate's byte is taken: all is mounted, the command is next--> RUNNING
    STARTING or RUNNING --bwrap reaped and pid 1 gone--> ENDED

``--json-status-fd`` names the jail's pid 1 before it is released; the ``--block-fd`` gate is the last
that bwrap reads before the filter and exec. What comes out of either is bwrap's alone, the jail
never holds them.
"""

import array
import enum
import fcntl
import json
import os
import resource
import select
import signal
import socket
import termios
import time
from contextlib import suppress
from typing import Final, Protocol

from jail.host.process import Identity
from jail.host.profile import Limits

_MAX_STATUS_BYTES: Final = 8_192
_GATE_BYTE: Final = b"\n"


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
        """Let pid 1, once known, go on: whoever has to know of it does. May be called at any time."""
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


class Jail:
    """A jail started by :class:`ExecStarter`; see :class:`RunningJail`."""

    def __init__(
        self,
        pid: int,
        status: int,
        gate: int,
        edge: socket.socket,
        limits: Limits,
        identity: Identity | None,
        began: float,
    ) -> None:
        self.edge = edge
        self.phase = Phase.STARTING
        self.spawn_s = 0.0
        self.how = ""
        self.why = ""
        self.init_pidfd: int | None = None
        self._began = began
        self._limits = limits
        self._identity = identity
        self._bwrap: int | None = pid
        self._init = 0
        self._status: int | None = status
        self._gate: int | None = gate
        self._text = b""
        self._released = False
        self._doomed = False

    @property
    def pids(self) -> tuple[int, ...]:
        """bwrap, and the jail's pid 1: ours to reap should bwrap die before it."""
        return tuple(pid for pid in (self._bwrap, self._init) if pid)

    @property
    def init_pid(self) -> int:
        """See :class:`RunningJail`."""
        return self._init

    @property
    def bwrap_pid(self) -> int | None:
        """bwrap itself, until it was reaped."""
        return self._bwrap

    @property
    def fds(self) -> tuple[int, ...]:
        """See :class:`RunningJail`; changes with every step."""
        gate = self._gate if self._init else None
        return tuple(fd for fd in (self._status, gate, self.init_pidfd) if fd is not None)

    def release(self) -> None:
        """See :class:`RunningJail`."""
        if self._init and not self._released and not self._doomed and self._gate is not None:
            # where it died before the gate its end follows: an empty pipe must not look passed
            with suppress(BrokenPipeError):
                os.write(self._gate, _GATE_BYTE)
                self._released = True

    def step(self) -> None:
        """See :class:`RunningJail`."""
        self._read_status()
        self._look_at_gate()
        self._look_at_end()

    def reaped(self, pid: int, status: int) -> None:
        """See :class:`RunningJail`."""
        if pid != self._bwrap:
            return
        self._bwrap = None
        code = os.waitstatus_to_exitcode(status)
        self.how = f"exit {code}" if code >= 0 else f"signal {-code}"
        self.step()
        self.kill()  # pid 1 may have outlived a bwrap that was killed

    def kill(self) -> None:
        """See :class:`RunningJail`. Before bwrap named its child, the kill waits for that."""
        self._doomed = True
        if self.init_pidfd is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.init_pidfd, signal.SIGKILL)

    def kill_hard(self) -> None:
        """See :class:`RunningJail`: end bwrap itself; it is a child not yet reaped, so the pid is its own."""
        self.kill()
        if self._bwrap is not None:
            os.kill(self._bwrap, signal.SIGKILL)

    def close(self) -> None:
        """See :class:`RunningJail`."""
        self.edge.close()
        for fd in (self._status, self._gate, self.init_pidfd):
            if fd is not None:
                os.close(fd)
        self._status = self._gate = self.init_pidfd = None

    def _read_status(self) -> None:
        if self._status is None:
            return
        try:
            data = os.read(self._status, _MAX_STATUS_BYTES)
        except BlockingIOError:
            return
        self._text = (self._text + data)[:_MAX_STATUS_BYTES]
        if not data:
            os.close(self._status)
            self._status = None
        if not self._init and b"\n" in self._text:
            self._on_init()

    def _on_init(self) -> None:
        """Take hold of pid 1, limit it, and open the gate; whatever fails ends the jail."""
        try:
            pid = int(json.loads(self._text.split(b"\n", 1)[0])["child-pid"])
            fd = os.pidfd_open(pid)
            # the number is bwrap's child as long as bwrap says so: a pid could have been used again
            if self._bwrap is None or parent_of(pid) != self._bwrap:
                os.close(fd)
                return
            self._init, self.init_pidfd = pid, fd
            _limit_processes(pid, self._limits.processes, self._identity)
        except (OSError, ValueError, KeyError, TypeError):
            self._doomed = True
            if self._bwrap is not None:
                os.kill(self._bwrap, signal.SIGKILL)
        if self._doomed:
            self.kill()

    def _look_at_gate(self) -> None:
        if self._gate is None or not self._init or not _broken(self._gate):
            return
        taken = self._released and gate_is_taken(self._gate)
        os.close(self._gate)
        self._gate = None
        if taken and not self._doomed and self.phase is Phase.STARTING:
            self.phase = Phase.RUNNING
            self.spawn_s = time.monotonic() - self._began

    def _look_at_end(self) -> None:
        if self._bwrap is not None:
            return
        if self.init_pidfd is None or readable(self.init_pidfd):
            self.phase = Phase.ENDED


def gate_is_taken(gate: int) -> bool:
    """Whether the reader of a pipe in error took the byte before it closed its end."""
    left = array.array("i", [0])
    fcntl.ioctl(gate, termios.FIONREAD, left)
    return left[0] == 0


def _limit_processes(pid: int, count: int, identity: Identity | None) -> None:
    """Set RLIMIT_NPROC of a jail's pid 1, so that it counts the jail's processes, not the host's.

    prlimit(2) wants our real ids to be the target's, or CAP_SYS_RESOURCE, which root in a
    container rarely has. The effective ids, and with them all privileges, stay as they are.
    """
    mine = Identity(os.getuid(), os.getgid())
    theirs = identity or mine
    try:
        os.setresgid(theirs.gid, -1, -1)
        os.setresuid(theirs.uid, -1, -1)
        resource.prlimit(pid, resource.RLIMIT_NPROC, (count, count))
    finally:
        os.setresuid(mine.uid, -1, -1)
        os.setresgid(mine.gid, -1, -1)


def parent_of(pid: int) -> int:
    """A process's parent; OSError for one that is gone."""
    fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return int(os.read(fd, _MAX_STATUS_BYTES).rpartition(b")")[2].split()[1])
    finally:
        os.close(fd)


def _events(fd: int, wanted: int) -> int:
    poll = select.poll()
    poll.register(fd, wanted)
    found = poll.poll(0)
    return found[0][1] if found else 0


def _broken(fd: int) -> bool:
    return bool(_events(fd, 0) & select.POLLERR)


def readable(fd: int) -> bool:
    """Whether a descriptor can be read now; for a pidfd: whether the process has ended."""
    return bool(_events(fd, select.POLLIN))
