"""Processes that read or write one area as its owner, at the end of a pipe of ours."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, NoReturn

from core.backup.collecting import collect
from core.backup.errors import BackupError
from core.backup.records import AreaKind, LeftOut, Record, pack, unpack
from core.backup.restoring import AreaWriter
from core.egress.process import harden
from jail.host.process import Identity, die_with_parent, fork_quietly

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MORE, _DONE = b"r", b"e"
_MAX_WORDS_BYTES = 2_000


class _Cut(BackupError):
    pass


def read_area(path: str, kind: AreaKind, owner: Identity | None) -> Iterator[Record]:
    """The records of an area, read by a child that is its owner (None: we are). Raises BackupError."""

    def work(pipe: IO[bytes]) -> None:
        try:
            root = os.open(path, _DIRECTORY)
        except PermissionError as error:
            if kind != "home":
                raise
            # its user shut even themselves out: that must not be the end of everybody's backup
            pipe.write(_MORE + pack(LeftOut(b".", os.strerror(error.errno or 0))) + _DONE)
            return
        for record in collect(root, kind):
            pipe.write(_MORE + pack(record))
        pipe.write(_DONE)

    with _child(work, owner, "wb") as pipe:
        yield from _records(pipe)


@contextmanager
def writing_area(path: str, owner: Identity | None, shared: bool) -> Iterator[Callable[[Record], None]]:
    """Gives a function that has records written by a child that is the area's owner.

    The area is whole when the block is left without an error; BackupError otherwise.
    """

    def work(pipe: IO[bytes]) -> None:
        writer = AreaWriter(os.open(path, _DIRECTORY), shared)
        for record in _records(pipe):
            writer.take(record)
        writer.finish()

    with _child(work, owner, "rb") as pipe:
        yield lambda record: (pipe.write(_MORE + pack(record)), None)[1]
        pipe.write(_DONE)


def ask(work: Callable[[], bytes], owner: Identity | None) -> bytes:
    """What ``work`` returns in a child that is ``owner``. Raises BackupError."""
    with _child(lambda pipe: (pipe.write(work()), None)[1], owner, "wb") as pipe:
        return pipe.read()


def _records(pipe: IO[bytes]) -> Iterator[Record]:
    while (mark := pipe.read(1)) == _MORE:
        record = unpack(lambda size: _exactly(pipe, size))
        if record is None:
            break
        yield record
    if mark != _DONE:
        raise _Cut("the other end of a pipe ended in the middle")


def _exactly(pipe: IO[bytes], size: int) -> bytes:
    data = pipe.read(size)
    if len(data) < size:
        raise _Cut("the other end of a pipe ended in the middle")
    return data


@contextmanager
def _child(work: Callable[[IO[bytes]], None], owner: Identity | None, its_mode: str) -> Iterator[IO[bytes]]:
    """A child that works on its end of a pipe; gives ours. Its own words come as BackupError."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    said, saying = os.pipe2(os.O_CLOEXEC)
    theirs, ours = (writing, reading) if its_mode == "wb" else (reading, writing)
    parent = os.getpid()
    pid = fork_quietly()
    if pid == 0:
        os.close(ours)
        os.close(said)
        _run(work, owner, theirs, its_mode, saying, parent)
    os.close(theirs)
    os.close(saying)
    failed = False
    try:
        with os.fdopen(ours, "rb" if its_mode == "wb" else "wb") as pipe:
            yield pipe
    except (_Cut, BrokenPipeError):
        failed = True  # it ended early, and says why
    except BaseException:
        _reap(pid, said)  # whose pipe was closed: it ends
        raise
    why, status = _reap(pid, said)
    if why or status or failed:
        raise BackupError(why or f"a process of the backup ended early, with {status}")


def _reap(pid: int, said: int) -> tuple[str, int]:
    with os.fdopen(said, "rb") as words:
        why = words.read(_MAX_WORDS_BYTES).decode(errors="replace")
    return why, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _run(
    work: Callable[[IO[bytes]], None], owner: Identity | None, fd: int, mode: str, saying: int, parent: int
) -> NoReturn:
    """The child: never returns."""
    status, why = 1, ""
    try:
        if owner is not None:
            os.setgroups([])
            os.setresgid(owner.gid, owner.gid, owner.gid)
            os.setresuid(owner.uid, owner.uid, owner.uid)
        os.umask(0o077)
        harden()
        die_with_parent(parent)
        with os.fdopen(fd, mode) as pipe:
            work(pipe)
        status = 0
    except BackupError as error:
        why = str(error)
    except OSError as error:
        where = os.fsdecode(error.filename) if error.filename else "a file"
        why = f"{where}: {error.strerror or type(error).__name__}"
    except sqlite3.Error as error:
        why = f"a database failed: {error}"
    except BaseException as error:  # noqa: BLE001 - whatever it is, this process ends here
        why = f"the backup has a bug: {type(error).__name__}"
    try:
        if why:
            os.write(saying, why.encode(errors="replace")[:_MAX_WORDS_BYTES])
    finally:
        os._exit(status)
