"""Memory files that nobody can change any more: whoever is handed one by its descriptor has all of it."""

import fcntl
import os
from typing import Final

_SEALS: Final = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


def sealed_file(name: str, data: bytes) -> int:
    """A descriptor of one, at its beginning; the caller's to close. Raises OSError."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.write(fd, data)
        os.lseek(fd, 0, os.SEEK_SET)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(fd)
        raise
    return fd


def is_sealed(fd: int) -> bool:
    """Whether it is one, by whomever it was made; False for what can't be sealed."""
    try:
        return fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _SEALS == _SEALS
    except OSError:
        return False
