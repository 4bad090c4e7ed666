"""What the kernel is told of this process before it reads a secret."""

import ctypes
import resource

_PR_SET_DUMPABLE = 4  # prctl(2)


def harden() -> None:
    """No core dump, no ptrace or /proc/PID/mem by others of our uid; raises OSError.

    Also lifts the soft limit of descriptors to the hard one: each chat takes one.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_DUMPABLE)")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
