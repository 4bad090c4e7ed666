"""Uploads under way: each is a temporary file in the home until its last chunk makes it the file.

A temporary lies on the home's own file system, so that the change is one rename(2): whatever ends
the worker, at the path stands the old file or the new one.
"""

import contextlib
import os
import re
import stat
import threading
import time
from dataclasses import dataclass

from jail.peer.home import PRIVATE, FileRefused, Home
from jail.wire.schema import FileWrite

IDLE_S = 300.0
"""An upload that is not continued for so long is forgotten."""
_MAX_UPLOADS = 16
_NAME = re.compile(rb"[0-9a-f]{16}\.part")
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(slots=True)
class _Upload:
    fd: int
    temporary: bytes
    size_bytes: int
    touched_s: float
    busy: bool = True


class Uploads:
    """The uploads of one worker. Everything blocks; one upload's chunks come one after another,
    on any thread."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._open: dict[str, _Upload] = {}
        self._swept = False
        self._lock = threading.Lock()

    def known(self, name: str) -> bool:
        """Whether this upload is under way."""
        return name in self._open

    def write(self, chunk: FileWrite) -> None:
        """Take a chunk; raises FileRefused and OSError, and the upload is forgotten then."""
        if chunk.drop:
            self.drop(chunk.upload)
            return
        try:
            upload = self._find(chunk)
            view = memoryview(chunk.data)
            while view:
                view = view[os.write(upload.fd, view) :]
            upload.size_bytes += len(chunk.data)
            if chunk.last:
                self._finish(upload, chunk.path)
                os.close(self._open.pop(chunk.upload).fd)
            upload.touched_s, upload.busy = time.monotonic(), False
        except BaseException:
            self.drop(chunk.upload)
            raise

    def drop(self, name: str) -> None:
        """Forget an upload and its file; harmless for one that isn't there."""
        upload = self._open.pop(name, None)
        if upload is not None:
            os.close(upload.fd)
            with contextlib.suppress(OSError):  # the user may have deleted or moved it
                os.unlink(upload.temporary)

    def drop_idle(self) -> None:
        """Forget those that nobody continues."""
        before_s = time.monotonic() - IDLE_S
        with self._lock:
            idle = [n for n, upload in self._open.items() if not upload.busy and upload.touched_s < before_s]
            for name in idle:
                self.drop(name)

    def drop_all(self) -> None:
        """Forget every one."""
        for name in list(self._open):
            self.drop(name)

    def _find(self, chunk: FileWrite) -> _Upload:
        with self._lock:
            upload = self._open.get(chunk.upload)
            if upload is not None:
                upload.busy = True
        if upload is None:
            if chunk.offset:
                raise FileRefused("not_found", "this upload was forgotten: begin it again")
            return self._begin(chunk)
        if chunk.offset != upload.size_bytes:
            raise FileRefused("invalid", f"the next chunk begins at {upload.size_bytes}")
        return upload

    def _begin(self, chunk: FileWrite) -> _Upload:
        if len(self._open) >= _MAX_UPLOADS:
            raise FileRefused("overloaded", f"{_MAX_UPLOADS} uploads are under way")
        self._target(chunk.path)  # better now than after a gigabyte
        directory = os.path.join(self._home.root, PRIVATE, b"uploads")
        os.makedirs(directory, 0o700, exist_ok=True)
        if os.path.realpath(directory) != directory:
            raise FileRefused("refused", ".certosa/uploads is a link: delete it")
        temporary = os.path.join(directory, chunk.upload.encode() + b".part")
        with self._lock:
            if not self._swept:
                self._sweep(directory)
            upload = _Upload(os.open(temporary, _NEW, 0o666), temporary, 0, time.monotonic())
            self._open[chunk.upload] = upload
        return upload

    def _sweep(self, directory: bytes) -> None:
        """Delete what a worker that was killed has left; a home has one worker at a time."""
        self._swept = True
        for name in os.listdir(directory):
            if _NAME.fullmatch(name):
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(directory, name))

    def _target(self, path: str) -> tuple[bytes, int | None]:
        """Where the file is to stand, and the mode of the one that stands there."""
        full = self._home.follow(path)
        try:
            found = os.lstat(full)
        except FileNotFoundError:
            return full, None
        if stat.S_ISDIR(found.st_mode):
            raise FileRefused("invalid", "a directory is there: name the file in it")
        if not stat.S_ISREG(found.st_mode):
            raise FileRefused("refused", "a FIFO, a device or a socket is there")
        if not os.access(full, os.W_OK):
            raise FileRefused("refused", "the file that is there is read-only")
        return full, stat.S_IMODE(found.st_mode) & 0o777

    def _finish(self, upload: _Upload, path: str) -> None:
        full, mode = self._target(path)
        if mode is not None:
            os.fchmod(upload.fd, mode)
        os.fsync(upload.fd)
        directory = os.path.dirname(full)
        os.makedirs(directory, exist_ok=True)
        os.rename(upload.temporary, full)
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
