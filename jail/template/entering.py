"""The last steps of a worker: from all capabilities over its jail to none, then its program.

Between here and the program stands nothing of a user's: no file of theirs is opened, no code of
theirs runs, before the filter is installed.
"""

import fcntl
import os
import resource
import select
import signal
import socket
from collections.abc import Callable
from typing import Final, NamedTuple

from jail.host.messages import receive_message, send_message
from jail.host.process import die_with_adopter, forbid_new_privileges, set_limit
from jail.host.profile import ENVIRONMENT, LISTENER_FD
from jail.host.starting import TO_BUILDER, BuildJail, Entered, Go
from jail.template import kernel
from jail.template.errors import BuildError
from jail.template.programs import prepare_program

_WAIT_MS: Final = 30_000
_CONN_FD: Final = LISTENER_FD + 1


class Place(NamedTuple):
    """Descriptors of a worker to be: the socket to the spawner, the listener, pidfds, a namespace."""

    conn: socket.socket
    listener: int
    spawner: int
    builder: int
    inner: int


def become_worker(request: BuildJail, place: Place) -> Callable[[], int]:
    """Give up everything but the jail; return what has to run then, with its exit status.

    To be called as pid 1 of a new pid namespace, within the namespaces of the jail and with all
    capabilities over them. Raises OSError and BuildError.
    """
    os.setsid()
    kernel.replace_proc()
    kernel.set_namespaces(place.inner, kernel.CLONE_NEWUSER)
    set_limit(resource.RLIMIT_NPROC, request.processes)
    kernel.drop_capabilities()
    forbid_new_privileges()
    os.chdir(ENVIRONMENT["HOME"])
    kernel.make_dumpable()
    _wait_for_adoption(place)
    conn = _arrange_descriptors(place)
    run = prepare_program(request.program)
    kernel.install_filter(request.seccomp)
    send_message(conn, Entered())
    conn.close()
    return run


def _wait_for_adoption(place: Place) -> None:
    """Wait until the builder is gone and the guard knows of us; then live no longer than the spawner.

    The signal at a parent's death is asked for when the spawner is the parent, as the builder's end
    would be taken for it.
    """
    _wait(place.builder)
    die_with_adopter()
    poll = select.poll()
    poll.register(place.spawner, select.POLLIN)
    if poll.poll(0):
        os.kill(os.getpid(), signal.SIGKILL)
        raise BuildError("the spawner has ended")
    _wait(place.conn.fileno())
    received = receive_message(place.conn, TO_BUILDER)
    if received is None or not isinstance(received[0], Go):
        raise BuildError("no longer wanted")


def _wait(fd: int) -> None:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    if not poll.poll(_WAIT_MS):
        raise BuildError(f"nothing came within {_WAIT_MS} ms")


def _arrange_descriptors(place: Place) -> socket.socket:
    """Leave 0-2, the listener as 3, and the socket to the spawner, closed last."""
    high = _CONN_FD + 1
    conn = socket.socket(fileno=_move(place.conn.detach(), high))
    listener = _move(place.listener, high)
    os.dup2(listener, LISTENER_FD)
    os.dup2(conn.detach(), _CONN_FD, inheritable=False)
    os.closerange(high, os.sysconf("SC_OPEN_MAX"))
    return socket.socket(fileno=_CONN_FD)


def _move(fd: int, at_least: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, at_least)
