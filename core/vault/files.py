"""The files under ``_keys/``: this uid's alone, and refused when anyone else could reach them.

Each is opened before it is judged, and judged by its descriptor: what was checked is what is read.
"""

import os
import stat
from pathlib import Path

from core.vault.errors import VaultError

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def prepare_directory(path: Path) -> None:
    """Make ``path`` (mode 0700) unless it exists; VaultError where it isn't ours alone."""
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
    except OSError as error:
        raise VaultError(f"{path}: cannot be made or read: {error.strerror}") from None
    if not stat.S_ISDIR(found.st_mode):
        raise VaultError(f"{path}: has to be a directory, not a link or anything else")
    _check_owner(path, found)


def open_private(path: Path) -> int | None:
    """Open a private regular file for reading; None where there is none.

    Raises VaultError for a link, a FIFO or device, another owner, or a mode that lets others in.
    The caller closes the descriptor.
    """
    try:
        # O_NONBLOCK: a FIFO laid here must not hold us
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        if path.is_symlink():
            raise VaultError(f"{path}: is a symbolic link; put the file itself there") from None
        raise VaultError(f"{path}: cannot be opened: {error.strerror}") from None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise VaultError(f"{path}: has to be a regular file")
        _check_owner(path, found)
    except VaultError:
        os.close(fd)
        raise
    return fd


def create_private(path: Path, data: bytes) -> None:
    """Make a file of mode 0600 with ``data``, whole or not at all, and durable on return.

    Raises VaultError where it exists already or cannot be written.
    """
    unfinished = path.with_name(path.name + ".new")
    try:
        unfinished.unlink(missing_ok=True)  # left by a crash; nobody ever used it
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(unfinished, flags, 0o600)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.link(unfinished, path)  # unlike rename, never replaces what is there
        finally:
            unfinished.unlink()
        sync_directory(path.parent)
    except OSError as error:
        raise VaultError(f"{path}: cannot be made: {error.strerror}") from None


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _check_owner(path: Path, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        raise VaultError(
            f"{path}: belongs to uid {found.st_uid}, this process is uid {os.geteuid()};"
            f" run chown {os.geteuid()} on it if it is the right file"
        )
    if found.st_mode & _OTHERS:
        mode = stat.S_IMODE(found.st_mode)
        right = "700" if stat.S_ISDIR(found.st_mode) else "600"
        raise VaultError(f"{path}: mode {mode:04o} lets others in; run chmod {right} on it")
