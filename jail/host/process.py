"""Starting a program from the single-threaded spawner: exactly these descriptors, limits, uid.

Own fork and exec instead of subprocess: descriptors get fixed numbers, and the parent-death signal
has to be set after the uid was changed, which clears it (prctl(2)).
"""

import ctypes
import fcntl
import os
import resource
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, NoReturn

from jail.host.messages import HostError

_libc = ctypes.CDLL(None, use_errno=True)

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_GET_CHILD_SUBREAPER: Final = 37
_PR_SET_NO_NEW_PRIVS: Final = 38

FIRST_FD: Final = 3
NOT_STARTED: Final = 125
"""The exit status of a child that could not become what it should."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A uid and gid of the host's."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Program:
    """A program to start. ``fds`` become 3, 4, ... in it; everything else is closed.

    ``identity`` None keeps the spawner's. ``limits`` pairs RLIMIT_ constants with a value that
    becomes both the soft and the hard one. ``cgroups`` are cgroup.procs files, joined as who we are.
    ``error_fd`` None is /dev/null. The new process leads a session, has umask 077, and dies by SIGKILL
    when the starting thread ends.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    fds: tuple[int, ...] = ()
    identity: Identity | None = None
    limits: tuple[tuple[int, int], ...] = ()
    cgroups: tuple[str, ...] = ()
    niceness: int = 0
    output_fd: int | None = None
    error_fd: int | None = None
    no_new_privs: bool = False


def prctl(option: int, value: int) -> None:
    """prctl(2) with one argument; raises OSError."""
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def become_subreaper(on: bool = True) -> None:
    """Adopt what descendants leave behind, so that all of it is reaped here."""
    prctl(_PR_SET_CHILD_SUBREAPER, int(on))


@contextmanager
def subreaper() -> Iterator[None]:
    """Be one for a while."""
    before = ctypes.c_int()
    if _libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    become_subreaper()
    try:
        yield
    finally:
        become_subreaper(bool(before.value))


def die_with_parent(parent: int) -> None:
    """Ask for SIGKILL at the parent's death; OSError if it is dead already."""
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise ProcessLookupError("the parent has ended")


def die_with_adopter() -> None:
    """Ask for SIGKILL at the end of a parent whose pid cannot be seen from here."""
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def forbid_new_privileges() -> None:
    """No execve gives more than we have, from here on (no_new_privs)."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


def fork_quietly() -> int:
    """fork(2) with every signal blocked across it; the child has default dispositions. Raises OSError.

    A Python handler that ran in the child would write into the wakeup pipe it shares with us.
    """
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = os.fork()
    except OSError:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        raise
    if pid == 0:
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            if signal.getsignal(number) is not signal.SIG_DFL:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        return 0
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    return pid


def start(program: Program) -> int:
    """Start a program and return its pid, to be reaped by the caller.

    Raises HostError when no process can be made. What fails after that ends the child with status
    NOT_STARTED.
    """
    parent = os.getpid()
    try:
        pid = fork_quietly()
    except OSError as error:
        raise HostError(f"no process could be started: {error.strerror}") from None
    if pid == 0:
        _become(program, parent)
    return pid


def _become(program: Program, parent: int) -> NoReturn:
    try:
        os.setsid()
        os.umask(0o077)
        _set_descriptors(program)
        join_cgroups(program.cgroups)
        os.nice(program.niceness)
        for limit, value in program.limits:
            set_limit(limit, value)
        change_identity(program.identity)
        die_with_parent(parent)
        if program.no_new_privs:
            forbid_new_privileges()
        os.execve(program.argv[0], program.argv, dict(program.env))  # noqa: S606
    finally:
        # nobody above this frame may run in the child, whatever was raised
        os._exit(NOT_STARTED)


def change_identity(identity: Identity | None) -> None:
    """Take a uid and gid for good, without supplementary groups."""
    if identity is None:
        return
    os.setgroups([])
    os.setresgid(identity.gid, identity.gid, identity.gid)
    os.setresuid(identity.uid, identity.uid, identity.uid)


def join_cgroups(procs: tuple[str, ...]) -> None:
    """Put this process, and what it starts from now on, into control groups. Raises OSError."""
    for path in procs:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, b"0")
        finally:
            os.close(fd)


def set_limit(limit: int, value: int) -> None:
    """Set a soft and hard limit of ours, to no more than the hard one that is there."""
    _, hard = resource.getrlimit(limit)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(limit, (value, value))


def _set_descriptors(program: Program) -> None:
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    output = program.output_fd if program.output_fd is not None else null
    errors = program.error_fd if program.error_fd is not None else null
    wanted = [null, output, errors, *program.fds]
    # out of the way first: a source may have the number of another's target
    aside = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, len(wanted)) for fd in wanted]
    for target, fd in enumerate(aside):
        os.dup2(fd, target)
    os.closerange(len(wanted), os.sysconf("SC_OPEN_MAX"))
