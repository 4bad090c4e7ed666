"""One jail, started and followed to its end by whoever calls: for the doctor, not for serving."""

import os
import select
import time
from collections.abc import Callable
from contextlib import suppress

from jail.host.guard import Guard
from jail.host.messages import HostError
from jail.host.running import Phase, RunningJail

_POLL_EVENTS = select.POLLIN | select.POLLERR | select.POLLHUP
_END_S = 5.0


def follow(
    jail: RunningJail,
    timeout_s: float,
    readers: dict[int, Callable[[], bool]] | None = None,
    on_running: Callable[[], None] | None = None,
) -> str:
    """Follow a jail to its end; return how it ended.

    Args:
        timeout_s: past it the jail is killed and HostError raised.
        readers: called when their descriptor is readable; False: no longer.
        on_running: called once, when the command starts.

    The jail's descriptors are closed in every case.
    """
    readers = dict(readers or {})
    deadline = time.monotonic() + timeout_s
    timed_out = False
    try:
        guard = _OneGuard()
    except OSError as error:
        jail.kill_hard()
        jail.close()
        raise HostError(f"a jail could not be guarded: {error.strerror}") from None
    try:
        while jail.phase is not Phase.ENDED:
            guard.look_at(jail)
            if time.monotonic() >= deadline:
                if timed_out:
                    raise HostError("a jail could not be ended")
                timed_out, deadline = True, time.monotonic() + _END_S
                jail.kill_hard()
            advance(jail, deadline - time.monotonic(), readers)
            if jail.phase is Phase.RUNNING and on_running is not None:
                call, on_running = on_running, None
                call()
        for fd, read in readers.items():
            while _ready(fd) and read():
                pass
    finally:
        jail.close()
        guard.close()
    if timed_out:
        raise HostError(f"the jail was still running after {timeout_s:g} s")
    return jail.how


def advance(jail: RunningJail, wait_s: float, readers: dict[int, Callable[[], bool]] | None = None) -> None:
    """Wait for one event of a jail's, at most ``wait_s`` seconds, and act on it; reaps its children.

    What is known of the jail is let go on first: whoever guards it has to know of that already. A reader
    that returns False is taken out of ``readers``.
    """
    readers = readers if readers is not None else {}
    jail.release()
    poll = select.poll()
    for fd in (*jail.fds, *readers):
        poll.register(fd, _POLL_EVENTS)
    children = {pidfd: pid for pid in jail.pids if (pidfd := _open(pid)) is not None}
    try:
        for pidfd in children:
            poll.register(pidfd, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(max(0.0, wait_s) * 1_000)}
    finally:
        for pidfd in children:
            os.close(pidfd)
    for fd in ready & readers.keys():
        if not readers[fd]():
            del readers[fd]
    for pid in (pid for pidfd, pid in children.items() if pidfd in ready):
        with suppress(ChildProcessError):  # another's child as yet: pid 1 below a bwrap
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                jail.reaped(found, status)
    jail.step()


class _OneGuard:
    """A guard for one jail: should we be killed, it ends the jail."""

    def __init__(self) -> None:
        self._guard = Guard()
        self._group: tuple[int, int] | None = None
        self._init: int | None = None

    def look_at(self, jail: RunningJail) -> None:
        """Tell it what is new; the jail ends if it cannot be told."""
        took = True
        if jail.group is not None and self._group is None:
            self._group = jail.group
            took = self._guard.watch_groups([jail.group])
        if jail.init_pidfd is not None and self._init is None:
            self._init = jail.init_pidfd
            took = self._guard.watch([jail.init_pidfd]) and took
        if not took:
            jail.kill_hard()

    def close(self) -> None:
        """End it, and reap it."""
        self._guard.close()
        os.waitpid(self._guard.pid, 0)


def _open(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def _ready(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))
