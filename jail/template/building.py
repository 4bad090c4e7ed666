"""From a fresh fork to the worker of a jail that bwrap has built.

    template --fork--> builder --posix_spawn--> bwrap, and its child: the jail's namespaces
                       builder --waits until all is mounted, enters, forks--> worker
                       builder --kills bwrap's child, ends--> worker and bwrap are the spawner's children

Namespaces live on by their members, so nothing of bwrap is left in the jail, and the worker is pid 1
of a pid namespace of its own.
"""

import os
import select
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NoReturn

from jail.host.messages import MAX_MOUNTS, HostError, receive_with_fds, send_message
from jail.host.process import NOT_STARTED, Identity, change_identity, die_with_parent, join_cgroups, set_limit
from jail.host.starting import TO_BUILDER, Builder, BuildFailed, BuildJail, Worker
from jail.template import kernel
from jail.template.bwrap import Bwrap
from jail.template.entering import Place, become_worker
from jail.template.errors import BuildError
from jail.template.serving import Fork

_SHARED: Final = (
    kernel.CLONE_NEWNS | kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS
    | kernel.CLONE_NEWCGROUP
)  # fmt: skip
_REQUEST_MS: Final = 10_000
_MAX_MESSAGE: Final = 1_000


def build(fork: Fork) -> Callable[[], int]:
    """Build a jail and return, in its worker alone, what has to run there."""
    try:
        send_message(fork.conn, Builder(), os.pidfd_open(os.getpid()))
        return _build(fork)
    except (OSError, HostError, BuildError) as error:
        message = str(error)
    except BaseException as error:  # noqa: BLE001 - told, and the end of this process
        message = f"{type(error).__name__}: {error}"
    return _give_up(fork.conn, message)


def _build(fork: Fork) -> Callable[[], int]:
    parent = os.getppid()
    request, listener, mounts = _receive_request(fork.conn)
    join_cgroups(request.cgroups)
    os.nice(request.niceness)
    if request.uid >= 0:
        change_identity(Identity(request.uid, request.gid))
    die_with_parent(parent)  # once more: a change of uid took it back
    for limit, value in request.limits:
        set_limit(limit, value)
    bwrap = Bwrap(request.bwrap, request.args, request.seccomp, mounts)
    builder = os.pidfd_open(os.getpid())
    try:
        bwrap.wait_until_built(fork.conn.fileno())
        inner = _enter(bwrap)
        worker = os.fork()
        if worker:
            send_message(fork.conn, Worker(worker), os.pidfd_open(worker))
    except (OSError, BuildError) as error:
        bwrap.end()
        raise BuildError(f"{error}; bwrap said: {bwrap.said()}") from None
    if worker:
        bwrap.leave()  # the worker waits for our end
        os._exit(0)
    return become_worker(request, Place(fork.conn, listener, fork.spawner, builder, inner))


def _enter(bwrap: Bwrap) -> int:
    """Enter all of the jail but its inner user namespace, whose descriptor is returned."""
    inner = bwrap.open_user_namespace()
    kernel.set_namespaces(kernel.parent_namespace(inner), kernel.CLONE_NEWUSER)
    kernel.set_namespaces(bwrap.child_pidfd, _SHARED)
    kernel.unshare(kernel.CLONE_NEWPID)
    return inner


def _receive_request(conn: socket.socket) -> tuple[BuildJail, int, tuple[int, ...]]:
    poll = select.poll()
    poll.register(conn, select.POLLIN)
    received = receive_with_fds(conn, TO_BUILDER, 1 + MAX_MOUNTS) if poll.poll(_REQUEST_MS) else None
    if received is None:
        raise BuildError("no request came")
    request, fds = received
    if not isinstance(request, BuildJail) or not fds:
        raise BuildError("not a request for a jail")
    return request, fds[0], fds[1:]


def _give_up(conn: socket.socket, message: str) -> NoReturn:
    # nobody above this frame may run: it would be a second template
    with suppress(OSError):
        send_message(conn, BuildFailed(message[:_MAX_MESSAGE]))
    os._exit(NOT_STARTED)
