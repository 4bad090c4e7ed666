"""Files of the operator's, replaced whole or not at all."""

import contextlib
import os
import secrets
from pathlib import Path

from core.cli.failure import CommandFailed

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def replace_file(path: Path, text: str) -> None:
    """Write a text to ``path``: a new file is its owner's alone, an old one keeps mode and owner.

    A crash leaves the old text or the new one. Raises CommandFailed where it cannot be written.
    """
    try:
        path = path.resolve()
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        directory = os.open(path.parent, _DIRECTORY)
    except OSError as error:
        raise CommandFailed(f"{path}: cannot be written: {error.strerror}") from None
    try:
        like = None
        with contextlib.suppress(FileNotFoundError):
            like = os.stat(path.name, dir_fd=directory, follow_symlinks=False)
        replace_in(directory, path.name, text.encode(), like)
    except OSError as error:
        raise CommandFailed(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        os.close(directory)


def replace_in(directory: int, name: str, data: bytes, like: os.stat_result | None) -> None:
    """The same within an open directory, by mode 0600 and our own uid unless ``like`` says otherwise."""
    made = f".{name}.{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(made, flags, 0o600, dir_fd=directory)
    try:
        with os.fdopen(fd, "wb") as file:
            if like is not None:
                if (like.st_uid, like.st_gid) != (os.geteuid(), os.getegid()):
                    os.fchown(fd, like.st_uid, like.st_gid)
                os.fchmod(fd, like.st_mode & 0o777)
            file.write(data)
            file.flush()
            os.fsync(fd)
        os.rename(made, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(made, dir_fd=directory)
        raise
    os.fsync(directory)
