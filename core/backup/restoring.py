"""One area written, by a process of its owner's uid, into a directory that is new and empty."""

import hashlib
import os

from core.backup.errors import BackupError
from core.backup.records import Data, File, FileEnd, Folder, Hole, LeftOut, Link, Record, Same

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class AreaWriter:
    """Takes an area's records in order; then :meth:`finish`. Raises BackupError, OSError.

    Links are made after all else, and modes of directories set last: until then there is none to go
    through, and none that shuts us out. What was written is on the disk after a sync(2) of the caller's.

    Args:
        root: the area's own directory, open; it keeps its mode.
        shared: whether the group that could read a file was another's than its owner's.
    """

    def __init__(self, root: int, shared: bool) -> None:
        self._root, self._shared = root, shared
        self._file = -1
        self._now: File | None = None
        self._digest = hashlib.sha256()
        self._size = 0
        self._folders: list[Folder] = []
        self._links: list[Link] = []

    def take(self, record: Record) -> None:
        """Write one record."""
        match record:
            case Folder(path=path):
                if path != b".":
                    os.mkdir(path, 0o700, dir_fd=self._root)
                    self._folders.append(record)
            case File(path=path):
                self._file = os.open(path, _NEW, 0o600, dir_fd=self._root)
                self._now, self._digest, self._size = record, hashlib.sha256(), 0
            case Data(data=data):
                view = memoryview(data)
                while view:
                    view = view[os.write(self._file, view) :]
                self._digest.update(data)
                self._size += len(data)
            case Hole(size=size):
                os.lseek(self._file, size, os.SEEK_CUR)
                self._digest.update(record.mark)
                self._size += size
            case FileEnd():
                self._end_file(record)
            case Same(path=path, first=first):
                # the checker has seen that it names a file of this area; there are no links yet to go through
                os.link(first, path, src_dir_fd=self._root, dst_dir_fd=self._root, follow_symlinks=False)
            case Link():
                self._links.append(record)
            case LeftOut():
                pass
            case _:
                raise BackupError(f"{type(record).__name__} has no place in an area")

    def finish(self) -> None:
        """Links, and modes of directories."""
        for link in self._links:
            os.symlink(link.target, link.path, dir_fd=self._root)
        for folder in reversed(self._folders):
            fd = os.open(folder.path, _DIRECTORY, dir_fd=self._root)
            try:
                os.fchmod(fd, folder.mode)
            finally:
                os.close(fd)

    def _end_file(self, end: FileEnd) -> None:
        assert self._now is not None
        try:
            if (self._size, self._digest.digest()) != (end.size, end.sha256):
                raise BackupError("a file of the backup is not what its hash says")
            os.ftruncate(self._file, self._size)  # it may end with a hole
            os.utime(self._file, ns=(self._now.mtime_ns, self._now.mtime_ns))
            mode = self._now.mode
            # its reader was let in as the group, which only root can give again; nobody else gets here
            os.fchmod(self._file, mode | (mode & 0o040) >> 3 if self._shared else mode)
        finally:
            os.close(self._file)
            self._file, self._now = -1, None
