"""A process that outlives the spawner by a moment, to end whatever the spawner started.

PDEATHSIG alone is not enough: a worker is pid 1 of its jail, and a thread of it that calls execve
becomes that pid 1 without the signal that its leader had asked for. Core, taken over, could take it
back by prctl. So every such process is also known, by a pidfd, to this one, which nobody but the
spawner can reach; at the end of file it sends SIGKILL to all that still live.
"""

import os
import select
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NoReturn

from jail.host.process import fork_quietly

_MAX_FDS: Final = 200  # the kernel takes 253 in a message (SCM_MAX_FD)


class Guard:
    """The spawner's end. A guard that died is seen by its pid being reaped; make another one then."""

    def __init__(self) -> None:
        self._sock, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = fork_quietly()
        if self.pid == 0:
            _run(end)
        end.close()
        self._sock.setblocking(False)

    def watch(self, pidfds: Sequence[int]) -> bool:
        """Add processes; False if the guard cannot take them, being dead or stuck."""
        try:
            for at in range(0, len(pidfds), _MAX_FDS):
                socket.send_fds(self._sock, [b"+"], pidfds[at : at + _MAX_FDS])
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """End one that is stuck, without its last act, so that another takes its place."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Let it end what still lives, and itself; its pid has to be reaped."""
        self._sock.close()


def _run(sock: socket.socket) -> NoReturn:
    status = 1
    try:
        os.setsid()
        _keep_only(sock)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)  # the spawner hears them and decides
        _watch(sock.fileno())
        status = 0
    finally:
        os._exit(status)


def _keep_only(sock: socket.socket) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    keep = sock.fileno()
    os.closerange(3, keep)
    os.closerange(keep + 1, os.sysconf("SC_OPEN_MAX"))


def _watch(sock: int) -> None:
    poll = select.epoll()
    poll.register(sock, select.EPOLLIN)
    watched: set[int] = set()
    end = socket.socket(fileno=sock)
    while True:
        for fd, _ in poll.poll():
            if fd != sock:  # that process has ended
                poll.unregister(fd)
                watched.discard(fd)
                os.close(fd)
                continue
            data, fds, _, _ = socket.recv_fds(end, 1, _MAX_FDS)
            for new in fds:
                poll.register(new, select.EPOLLIN)
                watched.add(new)
            if not data:
                for left in watched:
                    with suppress(ProcessLookupError, PermissionError):
                        signal.pidfd_send_signal(left, signal.SIGKILL)
                return
