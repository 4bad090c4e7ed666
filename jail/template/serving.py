"""The template's loop: one fork a request, and nothing read that concerns a user."""

import os
import select
import socket
from typing import NamedTuple


class Fork(NamedTuple):
    """What a fresh fork has: descriptors, and whose child it is.

    ``conn``: to the spawner, for this jail alone. ``spawner``: a pidfd of it. ``template``: our parent.
    """

    conn: socket.socket
    spawner: int
    template: int


def serve(control_fd: int) -> Fork:
    """Fork once a request until the spawner closes its end, which ends this process.

    Returns in the forks only. Each request is one byte and one descriptor.
    """
    os.set_inheritable(control_fd, False)
    control = socket.socket(fileno=control_fd)
    spawner = os.pidfd_open(os.getppid())
    me = os.getpid()
    poll = select.poll()
    poll.register(control_fd, select.POLLIN)
    builders: dict[int, int] = {}
    while True:
        for fd, _ in poll.poll():
            if fd in builders:
                os.waitpid(builders.pop(fd), 0)
                poll.unregister(fd)
                os.close(fd)
                continue
            data, fds, _, _ = socket.recv_fds(control, 1, 1, socket.MSG_CMSG_CLOEXEC)
            if not data:
                os._exit(0)
            pid = _fork()
            if pid == 0:
                control.close()
                for other in builders:
                    os.close(other)
                return Fork(socket.socket(fileno=fds[0]), spawner, me)
            for given in fds:
                os.close(given)  # without a fork, this is how the spawner learns of it
            if pid > 0:
                builder = os.pidfd_open(pid)
                builders[builder] = pid
                poll.register(builder, select.POLLIN)


def _fork() -> int:
    try:
        return os.fork()
    except OSError:
        return -1
