"""What a backup says, record by record; length before each. Strictly checked, wherever it comes from.

    Begin, then for each area: Area, its entries (a file's Data and FileEnd behind it), and last: End.

Areas are the parts of a data directory that one uid owns: ``_system``, ``_keys``, ``sealed``, and
``agents`` and ``home`` of each user. Within one, folders come before what is in them and links come last,
so that whoever writes them again never writes through a link.
"""

import struct
from collections.abc import Callable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from core.backup.errors import BackupError

VERSION = 2
"""Of what is written; 1, which has neither Hole nor Same, is read too."""
DATA_BYTES = 256 << 10
_LENGTH = struct.Struct(">I")
_HOLE = struct.Struct(">Q")
_MAX_RECORD_BYTES = 16 << 20  # the list of a hundred thousand users fits
MAX_PATH_BYTES = 4_095  # PATH_MAX without its NUL: what is longer cannot be made again

_Mode = Annotated[int, Meta(ge=0, le=0o777)]
_Name = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}\Z")]
AreaKind = Literal["_system", "_keys", "sealed", "agents", "home"]


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    pass


class User(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A user and the host uid that is theirs for good."""

    name: _Name
    host_uid: Annotated[int, Meta(ge=1, le=2**31 - 2)]


class Begin(_Record, frozen=True):
    """The first record; ``created_s`` is Unix time."""

    version: int
    created_s: int
    users: tuple[User, ...]


class Area(_Record, frozen=True):
    """What follows belongs here; ``user`` is empty for the server's own."""

    kind: AreaKind
    user: Annotated[str, Meta(pattern=r"^([a-z0-9][a-z0-9_-]{0,31})?\Z")] = ""


class Folder(_Record, frozen=True):
    """A directory; b"." is the area's own."""

    path: bytes
    mode: _Mode


class File(_Record, frozen=True):
    """A regular file; its bytes follow as Data, then FileEnd."""

    path: bytes
    mode: _Mode
    mtime_ns: int


class Data(_Record, frozen=True):
    """A piece of a file."""

    data: Annotated[bytes, Meta(max_length=DATA_BYTES)]


class Hole(_Record, frozen=True):
    """A piece of a file that reads as zeros and takes no room, nor is to take any here."""

    size: Annotated[int, Meta(ge=1, le=2**53)]

    @property
    def mark(self) -> bytes:
        """What stands for it in the file's hash: a terabyte of zeros would take an hour to go through."""
        return _HOLE.pack(self.size)


class FileEnd(_Record, frozen=True):
    """How long the file was, and the SHA-256 of its Data and of its Holes' marks."""

    size: int
    sha256: bytes


class Same(_Record, frozen=True):
    """Another name (a hard link) of a file whose first one came before in this area."""

    path: bytes
    first: bytes


class Link(_Record, frozen=True):
    """A symbolic link, as it is; nobody follows it."""

    path: bytes
    target: Annotated[bytes, Meta(min_length=1, max_length=MAX_PATH_BYTES)]


class LeftOut(_Record, frozen=True):
    """Something that is none of these: a device, a FIFO, a socket, or what could not be read."""

    path: bytes
    why: Annotated[str, Meta(max_length=200)]


class End(_Record, frozen=True):
    """The last record."""

    files: int
    bytes: int


Record = Begin | Area | Folder | File | Data | Hole | FileEnd | Same | Link | LeftOut | End

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Record).decode


def pack(record: Record) -> bytes:
    """A record as bytes."""
    data = _encode(record)
    return _LENGTH.pack(len(data)) + data


def unpack(read: Callable[[int], bytes]) -> Record | None:
    """The next record, None at the end; ``read`` gives exactly as much as asked, or b"" at the end.

    Raises BackupError for what is none.
    """
    head = read(_LENGTH.size)
    if not head:
        return None
    (length,) = _LENGTH.unpack(head)
    if not 0 < length <= _MAX_RECORD_BYTES:
        raise BackupError("a record of the backup is longer than any")
    try:
        record: Record = _decode(read(length))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BackupError(f"a record of the backup is none: {error}") from None
    if isinstance(record, Folder | File | Same | Link | LeftOut):
        check_path(record.path, isinstance(record, Folder | LeftOut))
    return record


def check_path(path: bytes, folder: bool) -> None:
    """BackupError unless a path stays below its area, whatever lies there."""
    if folder and path == b".":
        return
    parts = path.split(b"/")
    if b"\0" in path or len(path) > MAX_PATH_BYTES or any(part in (b"", b".", b"..") for part in parts):
        raise BackupError("a path in the backup leads out of its place")
