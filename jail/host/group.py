"""A process group by a descriptor, where a number could have become another's.

Any open file can name a process group as the owner of its signals, and the kernel keeps the group itself, not
its number (F_SETOWN_EX in fcntl(2)). Only that is used here: no signal is ever asked for.
"""

import fcntl
import os
import signal
import struct
from contextlib import suppress
from typing import Final

_F_SETOWN_EX: Final = 15  # on every machine; fcntl(2)
_F_GETOWN_EX: Final = 16
_F_OWNER_PGRP: Final = 2
_OWNER: Final = struct.Struct("ii")  # kind, number


def group_of(leader: int) -> int:
    """A descriptor for the group that a child not yet reaped leads, or is about to. Raises OSError."""
    fd = os.eventfd(0, os.EFD_CLOEXEC)
    try:
        fcntl.fcntl(fd, _F_SETOWN_EX, _OWNER.pack(_F_OWNER_PGRP, leader))
    except BaseException:
        os.close(fd)
        raise
    return fd


def kill_group(fd: int) -> None:
    """SIGKILL for every process in the group, zombies and none at all being none."""
    _, number = _OWNER.unpack(fcntl.fcntl(fd, _F_GETOWN_EX, bytes(_OWNER.size)))
    if number > 0:
        with suppress(ProcessLookupError):
            os.killpg(number, signal.SIGKILL)
