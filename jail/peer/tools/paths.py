"""Opening what a model names: relative to the home, regular files only, never waiting.

The kernel is the wall, not these checks: a jail holds nothing that its user may not see. What has
to be refused here is what would hang the worker, such as a FIFO nobody writes to.
"""

import os
import stat

from jail.peer.errors import ToolFailed

_KINDS = {
    stat.S_IFDIR: "a directory; list_files shows what is in it",
    stat.S_IFIFO: "a FIFO, not a file",
    stat.S_IFSOCK: "a socket, not a file",
    stat.S_IFCHR: "a device, not a file",
    stat.S_IFBLK: "a device, not a file",
}


def locate(home: str, path: str) -> str:
    """The absolute path of what a model named; "~" is the home."""
    if "\0" in path or not path:
        raise ToolFailed("A path has to be a name without NUL characters.")
    if path == "~" or path.startswith("~/"):
        path = path[2:]
    return os.path.normpath(os.path.join(home, path))


def open_regular(full: str, shown: str) -> int:
    """A descriptor to read a regular file with. Raises ToolFailed saying what is there instead."""
    try:
        _refuse_irregular(os.stat(full).st_mode, shown)
        # it may have become a FIFO since: O_NONBLOCK opens that at once, and we look again
        fd = os.open(full, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise explain(error, shown) from None
    try:
        _refuse_irregular(os.fstat(fd).st_mode, shown)
    except ToolFailed:
        os.close(fd)
        raise
    return fd


def _refuse_irregular(mode: int, shown: str) -> None:
    if not stat.S_ISREG(mode):
        raise ToolFailed(f"{shown} is {_KINDS.get(stat.S_IFMT(mode), 'not a regular file')}.")


def explain(error: OSError, shown: str) -> ToolFailed:
    """An operating system's error as a sentence for the model."""
    match error:
        case FileNotFoundError():
            return ToolFailed(f"There is no {shown}. list_files shows what there is.")
        case PermissionError():
            return ToolFailed(f"{shown} may not be read or changed from here.")
        case NotADirectoryError():
            return ToolFailed(f"A part of {shown} is not a directory.")
        case IsADirectoryError():
            return ToolFailed(f"{shown} is a directory; name a file.")
        case _:
            return ToolFailed(f"{shown}: {error.strerror or error}.")
