"""Starting a jail: the socket it listens on, the descriptors bwrap reads, the limits, the uid.

bwrap's stderr is not used, since the command inherits it: what it says comes from a run of
:mod:`jail.host.diagnosis`.
"""

import os
import resource
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from jail.host.edges import Edges
from jail.host.executing import Ends, Jail
from jail.host.handover import Handover
from jail.host.messages import HostError
from jail.host.process import Identity, Program, start
from jail.host.profile import COMMAND_LINE, JailFds, Limits, Profile, args_bytes, arguments
from jail.host.running import RunningJail, read_too
from jail.host.seccomp import filter_program
from jail.host.syscalls import Machine


@dataclass(frozen=True, slots=True)
class JailSpec:
    """A jail to start. ``host_uid`` 0 means the spawner's own uid, for an ordinary user only.

    ``mount_fds`` are what the profile's ``mounts`` are made of, each a memory file at its beginning; they
    stay the caller's, and open until the jail runs. ``cgroups`` are the cgroup.procs files of its groups
    (:mod:`jail.host.cgroups`); ``niceness`` is for where none of them weighs the CPU.
    """

    profile: Profile
    host_uid: int
    mount_fds: tuple[int, ...] = ()
    cgroups: tuple[str, ...] = ()
    niceness: int = 0


class Starter(Protocol):
    """Makes jails; ``exec`` is one way, a fork of a warm interpreter another."""

    uids: "HostUids"
    """Whom jails may run as."""

    @property
    def plain(self) -> "ExecStarter":
        """Starts the same jails by bwrap alone: to find out why none can be built."""
        ...

    def start(self, spec: JailSpec) -> RunningJail:
        """Begin to start a jail. Raises HostError when it is refused at once."""
        ...

    def reaped(self, pid: int) -> bool:
        """A child was waited for; whether it was one that starts jails."""
        ...

    def close(self) -> None:
        """End what it keeps; jails go on."""
        ...


@dataclass(frozen=True, slots=True)
class HostUids:
    """Which host uids a jail may have: root's ``range``, or the one ordinary user's own."""

    allowed: range

    def identity(self, host_uid: int) -> Identity | None:
        """The identity for a request; None stays who we are. Raises HostError."""
        if os.geteuid() != 0:
            if host_uid != 0:
                raise HostError("only a spawner started by root gives users host uids of their own")
            return None
        if host_uid not in self.allowed:
            raise HostError(f"host uid {host_uid} is outside {self.allowed.start}-{self.allowed.stop - 1}")
        return Identity(host_uid, host_uid)


class ExecStarter:
    """Starts jails by bwrap's own exec.

    Args:
        bwrap: its path.
        run_dir: a directory that only the spawner may enter, for a socket's first moment.
        uids: whom jails may run as.
        machine: for the filter.
    """

    def __init__(self, bwrap: Path, run_dir: Path, uids: HostUids, machine: Machine) -> None:
        self._bwrap = str(bwrap)
        self._edges = Edges(run_dir)
        self.uids = uids
        self.filter = filter_program(machine)

    @property
    def plain(self) -> "ExecStarter":
        """See :class:`Starter`."""
        return self

    def start(self, spec: JailSpec, error_fd: int | None = None) -> "Jail":
        """See :class:`Starter`. ``error_fd`` is for commands that are ours alone."""
        identity = self.uids.identity(spec.host_uid)
        began = time.monotonic()
        args = args_bytes(arguments(spec.profile, JailFds()))
        with ExitStack() as given, ExitStack() as ours:
            try:
                ends, fds = self._make_ends(args, given, ours)
                pid = start(
                    Program(
                        argv=(self._bwrap, *COMMAND_LINE, "--", *spec.profile.program),
                        fds=(*fds, *spec.mount_fds),
                        identity=identity,
                        limits=rlimits(spec.profile.limits),
                        cgroups=spec.cgroups,
                        niceness=spec.niceness,
                        error_fd=error_fd,
                    )
                )
            except (HostError, OSError) as error:
                raise HostError(f"a jail could not be started: {error}") from None
            ours.pop_all()
        return Jail(pid, ends, spec.profile.limits, identity, began)

    def _make_ends(self, args: bytes, given: ExitStack, ours: ExitStack) -> tuple[Ends, tuple[int, ...]]:
        """Both ends of all that bwrap is given; its own in the order of :class:`JailFds`."""
        listener, edge = self._edges.pair()
        given.callback(listener.close)
        ours.callback(edge.close)
        handovers = Handover(args), Handover(self.filter)
        for handover in handovers:
            given.callback(os.close, handover.fd)
            ours.callback(handover.close)
        status, once = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        ours.callback(os.close, status)
        status_end = read_too(once)
        given.callback(os.close, status_end)
        gate_end, gate = os.pipe2(os.O_CLOEXEC)
        ours.callback(os.close, gate)
        given.callback(os.close, gate_end)
        fds = (listener.fileno(), *(handover.fd for handover in handovers), status_end, gate_end)
        return Ends(*handovers, status, gate, edge), fds

    def reaped(self, _pid: int) -> bool:
        """See :class:`Starter`: bwrap starts itself."""
        return False

    def close(self) -> None:
        """See :class:`Starter`: nothing is kept."""


def rlimits(limits: Limits) -> tuple[tuple[int, int], ...]:
    """The limits that bwrap and all below it have, but for the number of processes."""
    return (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_AS, limits.address_bytes),
        (resource.RLIMIT_MEMLOCK, 65_536),
        (resource.RLIMIT_MSGQUEUE, 65_536),
        (resource.RLIMIT_SIGPENDING, 1_024),
        (resource.RLIMIT_NICE, 0),
        (resource.RLIMIT_RTPRIO, 0),
    )
