"""Whether a row of records is a whole backup: every file as its hash says, everything in its place."""

import hashlib
from dataclasses import dataclass, field

from core.backup.errors import BackupError
from core.backup.records import (
    VERSION,
    Area,
    Begin,
    Data,
    End,
    File,
    FileEnd,
    Folder,
    Hole,
    LeftOut,
    Link,
    Record,
    Same,
    User,
)

_MAX_LEFT_OUT = 1_000


@dataclass
class Report:
    """What a backup holds; ``bytes`` without what is holes.

    ``left_out`` are places of what is neither file, directory nor link, ``more_left_out`` how many past
    the first thousand: anybody may have any number in their home.
    """

    created_s: int = 0
    users: tuple[User, ...] = ()
    files: int = 0
    bytes: int = 0
    left_out: list[str] = field(default_factory=list)
    more_left_out: int = 0


class Checker:
    """Takes records in order; :meth:`finish` after the last. Raises BackupError."""

    def __init__(self) -> None:
        self.report = Report()
        self._begun = self._ended = False
        self._areas: set[tuple[str, str]] = set()
        self._area: Area | None = None
        self._file: File | None = None
        self._digest = hashlib.sha256()
        self._size = self._stored = 0
        self._seen: set[bytes] = set()
        self._links: set[bytes] = set()
        self._files: set[bytes] = set()

    def take(self, record: Record) -> None:
        """The next one."""
        if self._ended or self._begun is isinstance(record, Begin):
            raise _odd(record)
        if (self._file is not None) is not isinstance(record, Data | Hole | FileEnd):
            raise _odd(record)
        match record:
            case Begin():
                self._begin(record)
            case Area():
                self._enter(record)
            case Data(data=data):
                self._digest.update(data)
                self._size += len(data)
                self._stored += len(data)
            case Hole(size=size):
                self._digest.update(record.mark)
                self._size += size
            case FileEnd():
                self._end_file(record)
            case Folder(path=path) | File(path=path) | Same(path=path) | Link(path=path):
                self._place(path)
                if isinstance(record, File):
                    self._files.add(path)
                    self._file, self._digest, self._size, self._stored = record, hashlib.sha256(), 0, 0
                elif isinstance(record, Same):
                    self._same(record)
                elif isinstance(record, Link):
                    self._links.add(path)
            case LeftOut(path=path):
                self._leave_out(path, record.why)
            case End():
                if (record.files, record.bytes) != (self.report.files, self.report.bytes):
                    raise BackupError("the backup's own counts do not agree")
                self._ended = True

    def finish(self) -> Report:
        """No more come."""
        if not self._ended:
            raise BackupError("the backup has no end")
        missing = {("_system", ""), ("_keys", ""), ("sealed", "")} - self._areas
        if missing:
            raise BackupError(f"the backup lacks {', '.join(sorted(kind for kind, _ in missing))}")
        return self.report

    def _begin(self, record: Begin) -> None:
        if not 1 <= record.version <= VERSION:
            raise BackupError(
                f"the backup has version {record.version}, this Certosa knows {VERSION}: use a newer one"
            )
        if len({user.name for user in record.users}) != len(record.users):
            raise BackupError("the backup names a user twice")
        if len({user.host_uid for user in record.users}) != len(record.users):
            raise BackupError("the backup gives two users one host uid")
        self._begun = True
        self.report.created_s, self.report.users = record.created_s, record.users

    def _enter(self, record: Area) -> None:
        of_user = record.kind in ("home", "agents")
        known = {user.name for user in self.report.users}
        at = (record.kind, record.user)
        if of_user is not bool(record.user) or (of_user and record.user not in known) or at in self._areas:
            raise BackupError(f"the area {record.kind} {record.user} has no place in this backup")
        self._areas.add(at)
        self._area, self._seen, self._links, self._files = record, set(), set(), set()

    def _place(self, path: bytes) -> None:
        if self._area is None or path in self._seen:
            raise BackupError("an entry of the backup has no place of its own")
        above = path.rpartition(b"/")[0]
        while above:
            if above in self._links:
                raise BackupError("an entry of the backup lies behind a link")
            above = above.rpartition(b"/")[0]
        self._seen.add(path)

    def _end_file(self, record: FileEnd) -> None:
        if (self._size, self._digest.digest()) != (record.size, record.sha256):
            raise BackupError("a file of the backup is not what its hash says")
        self.report.files += 1
        self.report.bytes += self._stored
        self._file = None

    def _same(self, record: Same) -> None:
        if record.first not in self._files:
            raise BackupError("an entry of the backup is another name of no file")
        self.report.files += 1

    def _leave_out(self, path: bytes, why: str) -> None:
        if len(self.report.left_out) >= _MAX_LEFT_OUT:
            self.report.more_left_out += 1
            return
        where = f"{self._area.user}/" if self._area and self._area.user else ""
        self.report.left_out.append(f"{where}{path.decode(errors='replace')}: {why}")


def _odd(record: Record) -> BackupError:
    return BackupError(f"{type(record).__name__} comes where it has no meaning")
