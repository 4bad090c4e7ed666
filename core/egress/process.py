"""What the kernel is told of this process before it reads a secret."""

import ctypes
import resource

import msgspec

from core.config import Config
from core.egress.keyfile import read_descriptor
from core.errors import ConfigError

_MAX_CONFIG_BYTES = 1 << 20
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


def read_config(fd: int) -> Config:
    """The configuration from a memory file of the spawner's; closes it. Raises ConfigError."""
    data = read_descriptor(fd, _MAX_CONFIG_BYTES, "the configuration")
    try:
        return msgspec.json.decode(data, type=Config)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"the configuration handed over is not one: {error}") from None
