"""write_file and edit_file: after a crash at any moment a file is the old one or the new one."""

import binascii
import contextlib
import os
import stat
import threading
from typing import Annotated

from msgspec import Meta

from jail.peer.errors import ToolFailed
from jail.peer.texts import clean
from jail.peer.tools.base import Arguments, Surroundings, Tool, ToolResult, in_thread
from jail.peer.tools.paths import explain, locate, open_regular

_MAX_EDIT_BYTES = 8 * 1024 * 1024
# the temporary file's name follows from the file's, so that what a crash left is taken over by
# the next write; hence one write at a time
_WRITING = threading.Lock()


class WriteArguments(Arguments, frozen=True):
    path: Annotated[str, Meta(description="The file, relative to the home or absolute.")]
    content: Annotated[str, Meta(description="The whole new content.")]


class EditArguments(Arguments, frozen=True):
    path: Annotated[str, Meta(description="The file, relative to the home or absolute.")]
    old_text: Annotated[str, Meta(min_length=1, description="Text to replace, exactly as it is.")]
    new_text: Annotated[str, Meta(description="What to put in its place.")]
    replace_all: Annotated[bool, Meta(description="Replace every occurrence.")] = False


def _write(arguments: WriteArguments, around: Surroundings) -> ToolResult:
    data = arguments.content.encode("utf-8")
    with _WRITING:
        made = _replace(locate(around.home, arguments.path), data, clean(arguments.path))
    verb = "Created" if made else "Replaced"
    return ToolResult(True, f"{verb} {clean(arguments.path)}, {len(data)} bytes.")


def _edit(arguments: EditArguments, around: Surroundings) -> ToolResult:
    shown = clean(arguments.path)
    full = locate(around.home, arguments.path)
    old, new = arguments.old_text.encode(), arguments.new_text.encode()
    if old == new:
        raise ToolFailed("old_text and new_text are the same; nothing was changed.")
    with _WRITING:
        with open(open_regular(full, shown), "rb") as file:
            data = file.read(_MAX_EDIT_BYTES + 1)
        if len(data) > _MAX_EDIT_BYTES:
            raise ToolFailed(f"{shown} is over {_MAX_EDIT_BYTES} bytes; use run_command on it.")
        count = data.count(old)
        _check_count(count, arguments.replace_all, shown)
        if len(data) + count * (len(new) - len(old)) > _MAX_EDIT_BYTES:
            raise ToolFailed(f"{shown} would grow over {_MAX_EDIT_BYTES} bytes; nothing was changed.")
        _replace(full, data.replace(old, new), shown)
    return ToolResult(True, f"Replaced {count} occurrence{'s' * (count > 1)} in {shown}.")


def _check_count(count: int, replace_all: bool, shown: str) -> None:
    if count == 0:
        raise ToolFailed(
            f"old_text is not in {shown}. Read the file again: white space has to match exactly."
        )
    if count > 1 and not replace_all:
        raise ToolFailed(
            f"old_text is in {shown} {count} times. Give more of what is around the one you mean,"
            " or set replace_all."
        )


def _replace(full: str, data: bytes, shown: str) -> bool:
    """Put ``data`` in the file's place at once; whether it is new. Raises ToolFailed."""
    try:
        full = os.path.realpath(full)  # through a link, so that the link stays
        mode = _present_mode(full, shown)
        directory = os.path.dirname(full)
        os.makedirs(directory, exist_ok=True)
        digest = binascii.crc32(os.fsencode(os.path.basename(full)))
        temporary = os.path.join(directory, f".certosa-{digest:08x}.tmp")
        _write_through(temporary, data, mode)
        try:
            os.rename(temporary, full)
        except OSError:
            os.unlink(temporary)
            raise
        _sync_directory(directory)
    except OSError as error:
        raise explain(error, shown) from None
    return mode is None


def _present_mode(full: str, shown: str) -> int | None:
    """The mode of the file that is there, None where there is none. Raises ToolFailed."""
    try:
        mode = os.lstat(full).st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        what = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
        raise ToolFailed(f"{shown} is {what}; name a file.")
    if not os.access(full, os.W_OK):
        raise ToolFailed(f"{shown} is read-only.")
    return stat.S_IMODE(mode) & 0o777


def _write_through(temporary: str, data: bytes, mode: int | None) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(temporary, flags, 0o666), "wb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _sync_directory(directory: str) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


WRITE_FILE = Tool(
    "write_file",
    "Write a text file, in place of the one that is there. Directories above it are made.",
    WriteArguments,
    in_thread(_write),
)
EDIT_FILE = Tool(
    "edit_file",
    "Replace a piece of text in a file. It has to be there exactly once, unless replace_all is set.",
    EditArguments,
    in_thread(_edit),
)
