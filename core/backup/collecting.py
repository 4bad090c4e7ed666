"""One area read, by a process of its owner's uid: nobody with more rights walks what others can change.

Databases are copied by SQLite's own backup, which is consistent while others write; all else as it
lies there. Nothing is followed: a link is a link, and a file that is swapped for one fails to open.
"""

import contextlib
import errno
import hashlib
import os
import secrets
import sqlite3
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field

from core.backup.errors import BackupError
from core.backup.records import (
    DATA_BYTES,
    MAX_PATH_BYTES,
    AreaKind,
    Data,
    File,
    FileEnd,
    Folder,
    Hole,
    LeftOut,
    Link,
    Record,
    Same,
)

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_COPY = ".backup-"
_BUSY_S = 30.0
_MAX_DEPTH = 256
# what a running server makes anew, or has no meaning elsewhere
_OMITTED = ("admin.sock", "lock", "first-admin-token", "dump-core.txt", "dump-egress.txt")


@dataclass(frozen=True, slots=True)
class _Found:
    """What of an area has to be known later.

    Args:
        links: symbolic links, which come last.
        firsts: by device and inode, the first name of files that have several: each is stored once, or a
            file with a thousand names would be a thousand files.
    """

    links: list[Record] = field(default_factory=list)
    firsts: dict[tuple[int, int], bytes] = field(default_factory=dict)


def collect(root: int, kind: AreaKind) -> Iterator[Record]:
    """The records of the area below an open directory. Raises BackupError, OSError, sqlite3.Error."""
    found = _Found()
    if kind in ("home", "agents"):
        yield from _tree(root, b".", found, 0)
        yield from found.links
        return
    for name in sorted(os.listdir(root)):
        if name.startswith(_COPY):
            os.unlink(name, dir_fd=root)  # left by a backup that was cut short
        elif name.endswith(".db"):
            yield from _database(root, name)
        elif name not in _OMITTED and not name.endswith(("-wal", "-shm", "-journal", ".new")):
            yield from _entry(root, os.fsencode(name), os.fsencode(name), found, 0)
    yield from found.links


def _tree(root: int, path: bytes, found: _Found, depth: int) -> Iterator[Record]:
    if depth > _MAX_DEPTH:
        yield LeftOut(path, "too deep")
        return
    yield Folder(path, stat.S_IMODE(os.fstat(root).st_mode) & 0o777)
    for name in sorted(map(os.fsencode, os.listdir(root))):
        at = name if path == b"." else path + b"/" + name
        if len(at) > MAX_PATH_BYTES:
            yield LeftOut(path, "an entry of it has too long a path")
            continue
        yield from _entry(root, name, at, found, depth)


def _entry(root: int, name: bytes, path: bytes, found: _Found, depth: int) -> Iterator[Record]:
    try:
        info = os.stat(name, dir_fd=root, follow_symlinks=False)
        if stat.S_ISLNK(info.st_mode):
            found.links.append(Link(path, os.readlink(name, dir_fd=root)))
            return
        if not (stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode)):
            yield LeftOut(path, "neither a file nor a directory nor a link")
            return
        fd = os.open(name, _DIRECTORY if stat.S_ISDIR(info.st_mode) else _FILE, dir_fd=root)
    except OSError as error:
        # gone since, or of a mode that shuts even its owner out
        yield LeftOut(path, os.strerror(error.errno or 0))
        return
    try:
        if stat.S_ISDIR(info.st_mode):
            yield from _tree(fd, path, found, depth + 1)
        elif stat.S_ISREG((info := os.fstat(fd)).st_mode):
            first = found.firsts.setdefault((info.st_dev, info.st_ino), path) if info.st_nlink > 1 else path
            yield from _file(fd, path) if first == path else (Same(path, first),)
        else:
            yield LeftOut(path, "changed while it was looked at")
    finally:
        os.close(fd)


def _file(fd: int, path: bytes) -> Iterator[Record]:
    info = os.fstat(fd)
    yield File(path, stat.S_IMODE(info.st_mode) & 0o777, _in_64_bits(info.st_mtime_ns))
    digest, at = hashlib.sha256(), 0
    # no more than it had: one that grows as fast as it is read would have no end
    while at < info.st_size:
        if (begins := _seek(fd, at, os.SEEK_DATA, info.st_size)) > at:
            hole = Hole(begins - at)
            digest.update(hole.mark)
            at = begins
            yield hole
            continue
        ends = min(_seek(fd, at, os.SEEK_HOLE, info.st_size), at + DATA_BYTES)
        if not (data := os.pread(fd, ends - at, at)):
            break
        digest.update(data)
        at += len(data)
        yield Data(data)
    yield FileEnd(at, digest.digest())


def _seek(fd: int, at: int, whence: int, size: int) -> int:
    """Where data or a hole, which takes no room on the disk, begins from a place on (lseek(2))."""
    try:
        return min(os.lseek(fd, at, whence), size)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return size  # nothing but a hole is left, or it was cut meanwhile


def _database(root: int, name: str) -> Iterator[Record]:
    copy = f"{_COPY}{secrets.token_hex(8)}"
    here = f"/proc/self/fd/{root}"
    fd = os.open(
        copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=root
    )
    os.close(fd)
    try:
        # a path of the directory's descriptor would be resolved to one that may be swapped; the areas
        # read here are their owner's alone, who is who we are
        directory = os.readlink(here)
        with (
            contextlib.closing(sqlite3.connect(f"{directory}/{name}", timeout=_BUSY_S)) as source,
            contextlib.closing(sqlite3.connect(f"{directory}/{copy}", isolation_level=None)) as target,
        ):
            source.backup(target)
            target.execute("PRAGMA journal_mode = DELETE")
            if target.execute("PRAGMA quick_check").fetchone() != ("ok",):
                raise BackupError(f"{directory}/{name} is damaged: restore it from an older backup")
        fd = os.open(copy, _FILE, dir_fd=root)
        try:
            yield from _file(fd, name.encode())
        finally:
            os.close(fd)
    except sqlite3.Error as error:
        raise BackupError(f"{name} cannot be copied: {error}") from None
    finally:
        for suffix in ("", "-journal", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{copy}{suffix}", dir_fd=root)


def _in_64_bits(number: int) -> int:
    """Some file systems keep times that no record holds, and anybody may set one."""
    return max(-(2**63), min(number, 2**63 - 1))
