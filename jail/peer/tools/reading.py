"""list_files and read_file."""

import os
import stat
import time
from collections.abc import Iterator
from typing import Annotated, BinaryIO

from msgspec import Meta

from jail.peer.errors import ToolFailed
from jail.peer.texts import clean, size
from jail.peer.tools.base import Arguments, Surroundings, Tool, ToolResult, in_thread
from jail.peer.tools.paths import explain, locate, open_regular

_MAX_ENTRIES = 1_000
_MAX_VISITED = 50_000
_MAX_WALK_S = 5.0
_MAX_DEPTH = 32
_MAX_SCAN_BYTES = 256 * 1024 * 1024  # how far into a file read_file counts lines
_MAX_LINE_BYTES = 8_192
_SNIFF_BYTES = 8_192
_NOTE_BYTES = 256


class ListArguments(Arguments, frozen=True):
    path: Annotated[str, Meta(description="Directory; the home by default.")] = "."
    recursive: Annotated[bool, Meta(description="Also what is in its directories.")] = False


class ReadArguments(Arguments, frozen=True):
    path: Annotated[str, Meta(description="The file, relative to the home or absolute.")]
    offset: Annotated[int, Meta(ge=1, description="First line to read, counted from 1.")] = 1
    limit: Annotated[int, Meta(ge=1, le=10_000, description="How many lines to read.")] = 2_000


def _list(arguments: ListArguments, around: Surroundings) -> ToolResult:
    full = locate(around.home, arguments.path)
    shown = clean(arguments.path)
    lines: list[str] = []
    more = False
    total_bytes = 0
    for line in _walk(full, shown, arguments.recursive):
        total_bytes += size(line) + 1
        if len(lines) >= _MAX_ENTRIES or total_bytes > around.result_bytes - _NOTE_BYTES:
            more = True
            break
        lines.append(line)
    if more:
        lines.append(f"[more than {len(lines)} entries; list a directory further in]")
    return ToolResult(True, "\n".join(lines) or f"[{shown} is empty]")


def _walk(full: str, shown: str, recursive: bool) -> Iterator[str]:
    """Lines for what is in a directory, sorted; links are shown and not followed."""
    until_s = time.monotonic() + _MAX_WALK_S
    visited = 0
    todo = [(full, "", 0)]
    while todo:
        directory, prefix, depth = todo.pop()
        try:
            with os.scandir(directory) as scan:
                entries = []
                for entry in scan:
                    visited += 1
                    if visited > _MAX_VISITED or time.monotonic() > until_s:
                        break
                    entries.append(entry)
        except NotADirectoryError:
            raise ToolFailed(f"{shown} is not a directory; read_file reads a file.") from None
        except OSError as error:
            if not prefix:
                raise explain(error, shown) from None
            yield f"{prefix} [{error.strerror}]"
            continue
        below = []
        for entry in sorted(entries, key=lambda entry: entry.name):
            name = clean(prefix + entry.name)
            is_directory = entry.is_dir(follow_symlinks=False)
            yield _line(entry, name)
            if recursive and is_directory and depth < _MAX_DEPTH:
                below.append((entry.path, f"{prefix}{entry.name}/", depth + 1))
        todo += reversed(below)
        if visited > _MAX_VISITED or time.monotonic() > until_s:
            yield f"[stopped after {visited} entries; list a directory further in]"
            return


def _line(entry: "os.DirEntry[str]", name: str) -> str:
    try:
        if entry.is_symlink():
            return f"{name} -> {clean(os.readlink(entry.path))}"
        if entry.is_dir(follow_symlinks=False):
            return f"{name}/"
        found = entry.stat(follow_symlinks=False)
    except OSError as error:
        return f"{name} [{error.strerror}]"
    if not stat.S_ISREG(found.st_mode):
        return f"{name} [not a regular file]"
    return f"{name} ({found.st_size} bytes)"


def _read(arguments: ReadArguments, around: Surroundings) -> ToolResult:
    shown = clean(arguments.path)
    fd = open_regular(locate(around.home, arguments.path), shown)
    with open(fd, "rb") as file:
        head = file.read(_SNIFF_BYTES)
        if b"\0" in head:
            length = os.fstat(fd).st_size
            raise ToolFailed(
                f"{shown} is binary ({length} bytes). run_command or run_python can look into it."
            )
        file.seek(0)
        return _page(_lines(file), arguments, around.result_bytes - _NOTE_BYTES)


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The file's lines, none longer than a bound: the rest of a longer one is left out."""
    scanned = 0
    while scanned < _MAX_SCAN_BYTES and (line := file.readline(_MAX_LINE_BYTES)):
        scanned += len(line)
        rest = line
        left_out = 0
        while not rest.endswith(b"\n") and (rest := file.readline(65_536)):
            left_out += len(rest)
            scanned += len(rest)
            if scanned > _MAX_SCAN_BYTES:
                break
        yield line + b"[... %d bytes of this line left out]\n" % left_out if left_out else line


def _page(lines: Iterator[bytes], arguments: ReadArguments, room_bytes: int) -> ToolResult:
    page: list[bytes] = []
    number = 0
    more = False
    for number, line in enumerate(lines, start=1):
        if number < arguments.offset:
            continue
        room_bytes -= len(line)
        if len(page) >= arguments.limit or (room_bytes < 0 and page):
            more = True
            break
        page.append(line)
    if not page:
        if number == 0:
            return ToolResult(True, "[the file is empty]")
        raise ToolFailed(f"The file has {number} lines; offset {arguments.offset} is past its end.")
    text = b"".join(page).decode("utf-8", "replace")
    if more:
        last = arguments.offset + len(page) - 1
        text += f"[lines {arguments.offset} to {last}; there is more: read on with offset {last + 1}]"
    return ToolResult(True, text)


LIST_FILES = Tool(
    "list_files",
    "List the files in a directory, with their sizes. Paths are relative to the home directory.",
    ListArguments,
    in_thread(_list),
)
READ_FILE = Tool(
    "read_file",
    "Read a text file, or some of its lines. Paths are relative to the home directory.",
    ReadArguments,
    in_thread(_read),
)
