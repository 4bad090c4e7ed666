"""The template's loop: keeps a few forks in waiting, and reads nothing that concerns a user.

The forks themselves take the spawner's requests from the control socket, a datagram each, so a start
waits for a fork only while more come than are in waiting; the one that took a request says so to the
template, which makes another.
"""

import os
import select
import socket
from typing import Final, NamedTuple

from jail.host.process import die_with_parent
from jail.template.rehearsal import rehearse_building

_WAITING: Final = 2
_PID_BYTES: Final = 4
_TRY_AGAIN_MS: Final = 100  # where no process can be made now


class Fork(NamedTuple):
    """What a fork that took a request has.

    ``conn``: a socket to the spawner, for this jail alone. ``spawner``: a pidfd of it.
    """

    conn: socket.socket
    spawner: int


def serve(control_fd: int) -> Fork:
    """Keep forks in waiting until the spawner closes its end, which ends all of this.

    Returns in forks only, in each when it has taken a request.
    """
    os.set_inheritable(control_fd, False)
    control = socket.socket(fileno=control_fd)
    spawner = os.pidfd_open(os.getppid())
    taken, taken_end = os.pipe2(os.O_CLOEXEC)
    me = os.getpid()
    poll = select.poll()
    poll.register(control_fd, 0)  # its end; what comes is for the forks
    poll.register(taken, select.POLLIN)
    forks: dict[int, int] = {}  # pids by pidfds, of all that have not ended
    waiting: set[int] = set()
    while True:
        while len(waiting) < _WAITING and (pid := _fork()) >= 0:
            if pid == 0:
                for fd in (taken, *forks):
                    os.close(fd)
                die_with_parent(me)
                return Fork(_take(control, taken_end), spawner)
            waiting.add(pid)
            pidfd = os.pidfd_open(pid)
            forks[pidfd] = pid
            poll.register(pidfd, select.POLLIN)
        for fd, _ in poll.poll(_TRY_AGAIN_MS if len(waiting) < _WAITING else None):
            if fd == control_fd:
                os._exit(0)
            elif fd == taken:
                waiting.discard(int.from_bytes(os.read(taken, _PID_BYTES), "big"))
            else:
                pid = forks.pop(fd)
                os.waitpid(pid, 0)
                waiting.discard(pid)  # it may have ended without a request
                poll.unregister(fd)
                os.close(fd)


def _take(control: socket.socket, taken_end: int) -> socket.socket:
    """Wait for a request: one byte and one descriptor."""
    rehearse_building()
    data, fds, _, _ = socket.recv_fds(control, 1, 1, socket.MSG_CMSG_CLOEXEC)
    if not data or not fds:
        os._exit(0)
    os.write(taken_end, os.getpid().to_bytes(_PID_BYTES, "big"))
    os.close(taken_end)
    control.close()
    return socket.socket(fileno=fds[0])


def _fork() -> int:
    try:
        return os.fork()
    except OSError:
        return -1
