"""One jail, started and followed to its end by whoever calls: for the doctor, not for serving."""

import os
import select
import time
from collections.abc import Callable

from jail.host.messages import HostError
from jail.host.running import Jail, Phase

_POLL_EVENTS = select.POLLIN | select.POLLERR | select.POLLHUP
_END_S = 5.0


def follow(
    jail: Jail,
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
        while jail.phase is not Phase.ENDED:
            if time.monotonic() >= deadline:
                if timed_out:
                    raise HostError("a jail could not be ended")
                timed_out, deadline = True, time.monotonic() + _END_S
                jail.kill_bwrap()
            advance(jail, deadline - time.monotonic(), readers)
            if jail.phase is Phase.RUNNING and on_running is not None:
                call, on_running = on_running, None
                call()
        for fd, read in readers.items():
            while _ready(fd) and read():
                pass
    finally:
        jail.close()
    if timed_out:
        raise HostError(f"the jail was still running after {timeout_s:g} s")
    return jail.how


def advance(jail: Jail, wait_s: float, readers: dict[int, Callable[[], bool]] | None = None) -> None:
    """Wait for one event of a jail's, at most ``wait_s`` seconds, and act on it; reaps bwrap.

    A reader that returns False is taken out of ``readers``.
    """
    readers = readers if readers is not None else {}
    poll = select.poll()
    for fd in (*jail.fds, *readers):
        poll.register(fd, _POLL_EVENTS)
    bwrap = os.pidfd_open(jail.bwrap_pid) if jail.bwrap_pid else None
    try:
        if bwrap is not None:
            poll.register(bwrap, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(max(0.0, wait_s) * 1_000)}
    finally:
        if bwrap is not None:
            os.close(bwrap)
    for fd in ready & readers.keys():
        if not readers[fd]():
            del readers[fd]
    if bwrap in ready and jail.bwrap_pid:
        jail.reaped(*os.waitpid(jail.bwrap_pid, 0))
    jail.step()


def _ready(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))
