"""The user's home as core's file verbs see it: a tree whose root is the home.

The kernel is the wall, not these checks: a jail holds nothing that its user may not see. They keep
the verbs to the home, where they are meant to act, and away from what would hang the worker (a FIFO,
a device) or has no end (/proc). Everything here blocks; names are bytes, so that each can be said.
"""

import errno
import os
import shutil
import stat
from collections.abc import Generator

from jail.peer.errors import WorkerError
from jail.wire.paths import to_bytes, to_text
from jail.wire.schema import ErrorCode, FileEntry, FileInfo

PRIVATE = b".certosa"
"""Ours: results, uploads under way. Listed only by its own name."""
_MAX_LISTED = 200_000
_LISTED_AT_ONCE = 256
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC


class FileRefused(WorkerError):
    """A file verb cannot be done; code and sentence go to core.

    Args:
        code: as in a Failure.
        message: what is in the way and what to do.
    """

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code: ErrorCode = code
        self.message = message


class Home:
    """Finds, describes, lists and deletes what lies in ``home``; raises FileRefused and OSError."""

    def __init__(self, home: str) -> None:
        self.root = os.path.realpath(os.fsencode(home))

    def locate(self, path: str) -> bytes:
        """Where a path of core's leads, its last part unresolved: absolute, below the home."""
        try:
            parts = [part for part in to_bytes(path).split(b"/") if part not in (b"", b".")]
        except (ValueError, UnicodeEncodeError) as error:
            raise FileRefused("invalid", f"{error}") from None
        if b".." in parts:
            raise FileRefused("invalid", "a path has no `..`: say where it leads")
        if not parts:
            return self.root
        return os.path.join(self._inside(os.path.join(self.root, *parts[:-1])), parts[-1])

    def follow(self, path: str) -> bytes:
        """The same, through links as far as they stay in the home."""
        return self._inside(self.locate(path))

    def _inside(self, full: bytes) -> bytes:
        real = os.path.realpath(full)
        if real != self.root and not real.startswith(self.root + b"/"):
            raise FileRefused("refused", "this leads out of the home, through a link")
        return real

    def stat(self, path: str) -> FileInfo:
        """What lies at a path; a link that leads nowhere, or out of the home, is a ``link``."""
        found = os.lstat(self.locate(path))
        if stat.S_ISLNK(found.st_mode):
            try:
                found = os.lstat(self.follow(path))
            except (FileRefused, OSError):
                return describe(found)
        return describe(found, marked=True)

    def open(self, path: str) -> tuple[int, FileInfo]:
        """A descriptor to read a regular file with; never waits."""
        full = self.follow(path)
        _require_file(os.lstat(full).st_mode)
        # it may have become a FIFO since: O_NONBLOCK opens that at once, and we look again
        fd = os.open(full, _READ)
        try:
            found = os.fstat(fd)
            _require_file(found.st_mode)
        except BaseException:
            os.close(fd)
            raise
        return fd, describe(found, marked=True)

    def entries(self, path: str) -> Generator[tuple[FileEntry, ...], None, None]:
        """A directory's entries by name, some at a time."""
        full = self.follow(path)
        names = _names(full)
        if full == self.root:
            names = [name for name in names if name != PRIVATE]
        fd = os.open(full, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            for at in range(0, len(names), _LISTED_AT_ONCE):
                yield _describe_all(fd, names[at : at + _LISTED_AT_ONCE])
        finally:
            os.close(fd)

    def delete(self, path: str, recursive: bool) -> None:
        """Delete a file or a link, or all of a directory."""
        full = self.locate(path)
        if full == self.root:
            raise FileRefused("refused", "the home itself cannot be deleted")
        if not stat.S_ISDIR(os.lstat(full).st_mode):
            os.unlink(full)
        elif recursive:
            try:
                shutil.rmtree(full)  # by descriptors: no link that appears meanwhile is followed
            except RecursionError:
                raise FileRefused("limit", "nested too deeply: use `rm -r` in the jail") from None
        else:
            raise FileRefused("invalid", "this is a directory: ask for all in it with `recursive`")


def describe(found: os.stat_result, *, marked: bool = False) -> FileInfo:
    """What lstat(2) says, as core is told it."""
    kind = stat.S_IFMT(found.st_mode)
    size = found.st_size if kind == stat.S_IFREG else 0
    mark = f"{found.st_ino:x}-{size:x}-{found.st_mtime_ns:x}-{found.st_ctime_ns:x}" if marked else ""
    modified_s = min(max(0, int(found.st_mtime)), 2**53)
    match kind:
        case stat.S_IFREG:
            return FileInfo("file", size, modified_s, mark)
        case stat.S_IFDIR:
            return FileInfo("directory", 0, modified_s)
        case stat.S_IFLNK:
            return FileInfo("link", 0, modified_s)
    return FileInfo("other", 0, modified_s)


def explain(error: OSError) -> FileRefused:
    """What the system said, in terms of the wire."""
    match error.errno:
        case errno.ENOENT:
            return FileRefused("not_found", "there is nothing at this path")
        case errno.ENOTDIR:
            return FileRefused("not_found", "a part of this path is not a directory")
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return FileRefused("refused", "the file's mode does not allow this")
        case errno.EFBIG:
            return FileRefused("limit", "the file is larger than one may be in a jail")
        case errno.ENOSPC | errno.EDQUOT:
            return FileRefused("limit", "there is no room left on the disk")
        case errno.ENAMETOOLONG:
            return FileRefused("invalid", "a name is longer than the file system takes")
        case errno.ELOOP:
            return FileRefused("invalid", "links lead in a circle")
        case errno.EISDIR:
            return FileRefused("invalid", "this is a directory")
    return FileRefused("invalid", f"{error.strerror or 'it failed'}")


def _require_file(mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise FileRefused("invalid", "this is a directory: list it instead")
    if not stat.S_ISREG(mode):
        raise FileRefused("refused", "this is a FIFO, a device, a socket or a broken link, not a file")


def _names(directory: bytes) -> list[bytes]:
    names: list[bytes] = []
    with os.scandir(directory) as found:
        for entry in found:
            if len(names) >= _MAX_LISTED:
                raise FileRefused("limit", f"more than {_MAX_LISTED} entries: list it in the jail")
            names.append(entry.name)
    names.sort()
    return names


def _describe_all(directory: int, names: list[bytes]) -> tuple[FileEntry, ...]:
    found: list[FileEntry] = []
    for name in names:
        try:
            info = describe(os.stat(name, dir_fd=directory, follow_symlinks=False))
        except FileNotFoundError:
            continue  # deleted since it was listed
        found.append(FileEntry(to_text(name), info))
    return tuple(found)
