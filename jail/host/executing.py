"""Jails started by bwrap alone, as the spawner sees them, followed without waiting: the caller owns the loop.

    STARTING --its group is guarded: bwrap is given its arguments--> (bwrap makes its child)
             --bwrap named pid 1, limits are set, it is guarded: the gate is opened--> (bwrap mounts)
             --the gate's byte is taken: all is mounted, the command is next--> RUNNING
    STARTING or RUNNING --bwrap reaped and pid 1 gone--> ENDED

``--json-status-fd`` names the jail's pid 1 before it is released; the ``--block-fd`` gate is the last
that bwrap reads before the filter and exec. What comes out of either is bwrap's alone, the jail
never holds them.

Should we end meanwhile, nothing is left. Without its arguments bwrap refuses; without the filter, which is
given with the gate's byte, its child does, and up to there that child is in bwrap's process group, where
the guard finds it even if bwrap was killed before it let it go on.
"""

import json
import os
import resource
import signal
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from jail.host.group import group_of, kill_group
from jail.host.handover import Handover
from jail.host.process import Identity
from jail.host.profile import Limits
from jail.host.running import MAX_STATUS_BYTES, Phase, broken, gate_is_taken, parent_of, readable

_GATE_BYTE: Final = b"\n"


@dataclass(frozen=True, slots=True)
class Ends:
    """Our ends of what bwrap was given: its arguments and filter, the status pipe, the gate, the edge."""

    args: Handover
    filter: Handover
    status: int
    gate: int
    edge: socket.socket


class Jail:
    """A jail started by :class:`ExecStarter`; see :class:`RunningJail`."""

    def __init__(
        self,
        pid: int,
        ends: "Ends",
        limits: Limits,
        identity: Identity | None,
        began: float,
    ) -> None:
        self.edge = ends.edge
        self.group: tuple[int, int] | None = None
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
        self._args, self._filter = ends.args, ends.filter
        self._status: int | None = ends.status
        self._gate: int | None = ends.gate
        self._text = b""
        self._released = False
        self._doomed = False
        try:
            self.group = os.pidfd_open(pid), group_of(pid)
        except OSError as error:
            self.why = f"it could not be guarded: {error.strerror}"
            self.kill_hard()

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
        if self._doomed:
            self._args.close()
            return
        if not self._args.give():
            self.kill_hard()
        if self._init and not self._released and self._gate is not None and self._filter.give():
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
        self._kill_group()

    def kill(self) -> None:
        """See :class:`RunningJail`. Before bwrap named its child, the kill waits for that."""
        self._doomed = True
        if self.init_pidfd is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.init_pidfd, signal.SIGKILL)

    def kill_hard(self) -> None:
        """See :class:`RunningJail`: end bwrap itself; it is a child not yet reaped, so the pid is its own."""
        self.kill()
        self._kill_group()
        if self._bwrap is not None:
            os.kill(self._bwrap, signal.SIGKILL)  # it may not lead the group yet

    def close(self) -> None:
        """See :class:`RunningJail`."""
        self.edge.close()
        self._args.close()
        self._filter.close()
        for fd in (self._status, self._gate, self.init_pidfd, *(self.group or ())):
            if fd is not None:
                os.close(fd)
        self._status = self._gate = self.init_pidfd = self.group = None

    def _kill_group(self) -> None:
        if self.group is not None:
            kill_group(self.group[1])

    def _read_status(self) -> None:
        if self._status is None:
            return
        try:
            data = os.read(self._status, MAX_STATUS_BYTES)
        except BlockingIOError:
            return
        self._text = (self._text + data)[:MAX_STATUS_BYTES]
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
            self.kill_hard()
        if self._doomed:
            self.kill()

    def _look_at_gate(self) -> None:
        if self._gate is None or not self._init or not broken(self._gate):
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
