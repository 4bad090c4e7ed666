"""A process that outlives the spawner by a moment, to end whatever the spawner started.

PDEATHSIG alone is not enough: a worker is pid 1 of its jail, and a thread of it that calls execve
becomes that pid 1 without the signal that its leader had asked for. Core, taken over, could take it
back by prctl. So every such process is also known, by a pidfd, to this one, which nobody but the
spawner can reach; at the end of file it sends SIGKILL to all that still live.

And PDEATHSIG can come too early: bwrap, killed between making its child and letting it go on, leaves
one that waits for ever. Until its command is next that child is in bwrap's process group, so the group
is known here too, for as long as bwrap lives.
"""

import os
import select
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NoReturn

from jail.host.cgroups import Cgroups
from jail.host.group import kill_group
from jail.host.process import fork_quietly

_MAX_FDS: Final = 200  # even; the kernel takes 253 in a message (SCM_MAX_FD)
_PROCESSES: Final = b"+"
_GROUPS: Final = b"g"


class Guard:
    """The spawner's end. A guard that died is seen by its pid being reaped; make another one then.

    Args:
        cgroups: are removed too at the end of a spawner that did not come to it.
    """

    def __init__(self, cgroups: Cgroups | None = None) -> None:
        self._sock, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = fork_quietly()
        if self.pid == 0:
            _run(end, cgroups)
        end.close()
        self._sock.setblocking(False)

    def watch(self, pidfds: Sequence[int]) -> bool:
        """Add processes; False if the guard cannot take them, being dead or stuck."""
        return self._send(_PROCESSES, pidfds)

    def watch_groups(self, groups: Sequence[tuple[int, int]]) -> bool:
        """Add groups, as a pidfd of the leader and the group (:mod:`jail.host.group`); as :meth:`watch`."""
        return self._send(_GROUPS, [fd for group in groups for fd in group])

    def _send(self, kind: bytes, fds: Sequence[int]) -> bool:
        try:
            for at in range(0, len(fds), _MAX_FDS):
                socket.send_fds(self._sock, [kind], fds[at : at + _MAX_FDS])
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


def _run(sock: socket.socket, cgroups: Cgroups | None) -> NoReturn:
    status = 1
    try:
        os.setsid()
        _keep_only(sock)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)  # the spawner hears them and decides
        _watch(sock.fileno())
        if cgroups is not None:
            cgroups.close()
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
    groups: dict[int, int | None] = {}  # by pidfds of their leaders; of other processes None
    end = socket.socket(fileno=sock)
    while True:
        ready = {fd for fd, _ in poll.poll()}
        # first, and to its last message: the spawner's end comes before the signals its children get for it
        while (message := _receive(end)) is not None:
            data, fds = message
            if not data:
                _end_all(groups)
                return
            found = dict(zip(fds[::2], fds[1::2], strict=True)) if data == _GROUPS else dict.fromkeys(fds)
            for fd in found:
                poll.register(fd, select.EPOLLIN)
            groups |= found
        for fd in ready & groups.keys():  # that process has ended
            poll.unregister(fd)
            os.close(fd)
            if (group := groups.pop(fd)) is not None:
                os.close(group)


def _receive(sock: socket.socket) -> tuple[bytes, list[int]] | None:
    try:
        data, fds, _, _ = socket.recv_fds(sock, 1, _MAX_FDS, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return None
    return data, fds


def _end_all(groups: dict[int, int | None]) -> None:
    for process, group in groups.items():
        with suppress(ProcessLookupError, PermissionError):
            if group is not None:
                kill_group(group)
            signal.pidfd_send_signal(process, signal.SIGKILL)
