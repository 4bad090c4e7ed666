"""A backup made, checked and restored: the order of it all, and who does which part.

Made while the server runs: each database is copied as of one moment, core's first. A user who is
added meanwhile is in it or not, or half, and adding them again finishes it; one who is deleted
meanwhile has no key any more in it.
"""

import contextlib
import errno
import os
import secrets
import shutil
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from core.backup.checking import Checker, Report
from core.backup.children import ask, read_area, writing_area
from core.backup.errors import BackupError
from core.backup.records import VERSION, Area, AreaKind, Begin, End, Record, User, pack, unpack
from core.backup.sealing import SealedReader, SealedWriter
from core.users import is_taken
from jail.host.layout import Layout, Owners
from jail.host.messages import HostError
from jail.host.process import Identity

STAGING = "_restoring"
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
# in this order they are put in place: without keys nothing is of any use
_PLACES = ("users", "sealed", "_system", "_keys")


class Place(NamedTuple):
    """A data directory and who owns what in it; ``user_uids`` may be users' when we are root."""

    data_dir: Path
    owners: Owners | None
    user_uids: range

    def owner(self, area: Area, host_uid: int) -> Identity | None:
        """Who reads and writes an area; None where we are everybody."""
        if self.owners is None:
            return None
        if area.kind == "home":
            return Identity(host_uid, host_uid)
        return self.owners.egress if area.kind == "_keys" else self.owners.core

    def path(self, area: Area) -> Path:
        """Where it lies."""
        return self.data_dir / "users" / area.user / area.kind if area.user else self.data_dir / area.kind


def make_backup(place: Place, file: Path, passphrase: str) -> Report:
    """Write a backup to a new file, and read it again. Raises BackupError; then there is no file."""
    if not (place.data_dir / "_system" / "core.db").exists():
        raise BackupError(f"{place.data_dir} is no data directory of a server; name it with --data-dir")
    if os.path.lexists(file):
        raise BackupError(f"{file} exists already: choose another name")
    unfinished = file.with_name(f".{file.name}.{secrets.token_hex(6)}")
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(unfinished, flags, 0o600), "w+b") as out:
            sealed = SealedWriter(out, passphrase)
            checker = Checker()
            for record in _all(place, checker.report):
                checker.take(record)
                sealed.write(pack(record))
            sealed.finish()
            out.flush()
            os.fsync(out.fileno())
        written = verify(unfinished, passphrase)
        if written != checker.finish():
            raise BackupError("what was written is not what was read; is the disk sound?")
        _name(unfinished, file)
        return written
    except OSError as error:
        raise BackupError(f"{file}: cannot be written: {error.strerror}") from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            unfinished.unlink()


def _name(unfinished: Path, file: Path) -> None:
    """Give a file its name, in place of nothing."""
    try:
        os.link(unfinished, file)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # a memory stick, a network's share: what is replaced is the empty file that we make here
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        os.rename(unfinished, file)


def verify(file: Path, passphrase: str) -> Report:
    """Read all of a backup. Raises BackupError where it is not whole and unchanged."""
    checker = Checker()
    for record in _records(file, passphrase):
        checker.take(record)
    return checker.finish()


def restore(place: Place, file: Path, passphrase: str) -> Report:
    """Put a backup into a data directory that has nothing of a server's. Raises BackupError.

    After an error nothing of it is there. The last steps are four renames; a crash between them leaves
    ``_restoring``, with which no server starts.
    """
    report = verify(file, passphrase)
    _check_empty(place.data_dir)
    _check_uids(place, report.users)
    staging = place.data_dir / STAGING
    made = [p for p in (place.data_dir, *place.data_dir.parents) if not p.exists()]
    moved: list[Path] = []
    try:
        _make_data_dir(place)
        staging.mkdir(mode=0o711 if place.owners else 0o700)
        staging.chmod(0o711 if place.owners else 0o700)
        _extract(place._replace(data_dir=staging), file, passphrase)
        os.sync()
        for name in _PLACES:
            os.rename(staging / name, place.data_dir / name)
            moved.append(place.data_dir / name)
        shutil.rmtree(staging)
    except BaseException as error:
        for path in (staging, *moved):
            shutil.rmtree(path, ignore_errors=True)
        for path in made:
            with contextlib.suppress(OSError):
                path.rmdir()
        if isinstance(error, OSError):
            raise BackupError(f"cannot be restored: {error.filename or ''}: {error.strerror}") from None
        if isinstance(error, HostError):
            raise BackupError(f"cannot be restored: {error}") from None
        raise
    return report


def _all(place: Place, counted: Report) -> Iterator[Record]:
    """Every record; ``counted`` is kept by whoever takes them."""
    core = place.owners.core if place.owners else None
    users = msgspec.msgpack.decode(
        ask(lambda: _users(place.data_dir / "_system" / "core.db"), core), type=tuple[User, ...]
    )
    yield Begin(VERSION, int(time.time()), users)
    kinds: tuple[AreaKind, ...] = ("_system", "_keys", "sealed")
    for kind in kinds:
        yield from _area(place, Area(kind), 0)
    for user in users:
        kinds = ("agents", "home")
        for kind in kinds:
            area = Area(kind, user.name)
            if os.path.lexists(place.path(area)):
                yield from _area(place, area, user.host_uid)
    yield End(counted.files, counted.bytes)


def _area(place: Place, area: Area, host_uid: int) -> Iterator[Record]:
    yield area
    yield from read_area(str(place.path(area)), area.kind, place.owner(area, host_uid))


def _users(path: Path) -> bytes:
    with contextlib.closing(sqlite3.connect(path, timeout=30.0)) as db:
        rows = db.execute("SELECT name, host_uid FROM users ORDER BY name").fetchall()
    return msgspec.msgpack.encode([User(name, uid) for name, uid in rows])


def _records(file: Path, passphrase: str) -> Iterator[Record]:
    try:
        with file.open("rb") as source:
            reader = SealedReader(source, passphrase)
            while (record := unpack(reader.read)) is not None:
                yield record
    except OSError as error:
        raise BackupError(f"{file}: cannot be read: {error.strerror}") from None


def _extract(place: Place, file: Path, passphrase: str) -> None:
    """Write all areas below a directory of ours; checked once more, since the file may have changed."""
    layout = Layout(place.data_dir, place.owners)
    layout.prepare()
    checker = Checker()
    uids: dict[str, int] = {}
    with contextlib.ExitStack() as now:
        write = None
        for record in _records(file, passphrase):
            checker.take(record)
            match record:
                case Begin(users=users):
                    for user in users:
                        uids[user.name] = user.host_uid
                        layout.prepare_user(user.name, user.host_uid if place.owners else 0)
                case Area():
                    now.close()  # the area before is whole
                    owner = place.owner(record, uids.get(record.user, 0))
                    shared = place.owners is not None and record.kind == "agents"
                    write = now.enter_context(writing_area(str(place.path(record)), owner, shared))
                case End():
                    now.close()
                case _:
                    assert write is not None  # the checker has seen an Area
                    write(record)
    checker.finish()


def _check_empty(data_dir: Path) -> None:
    if os.path.lexists(data_dir / STAGING):
        raise BackupError(
            f"{data_dir / STAGING} was left by a restore that was cut short: delete it, and any of"
            f" {', '.join(_PLACES)} beside it, then restore again"
        )
    there = [name for name in (*_PLACES, "_run") if os.path.lexists(data_dir / name)]
    if there:
        raise BackupError(
            f"{data_dir} has {', '.join(there)} of a server already: restore into another directory"
            " (--data-dir), or move these away"
        )


def _check_uids(place: Place, users: tuple[User, ...]) -> None:
    if place.owners is None:
        return
    for user in users:
        if user.host_uid not in place.user_uids:
            raise BackupError(
                f"{user.name} has the host uid {user.host_uid}, which is outside of this server's range from"
                f" {place.user_uids.start}: set jail.uid_base as it was where the backup was made"
            )
        if is_taken(user.host_uid):
            raise BackupError(
                f"{user.name} has the host uid {user.host_uid}, which on this machine is another account"
            )


def _make_data_dir(place: Place) -> None:
    new = not place.data_dir.exists()
    place.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    info = place.data_dir.lstat()
    if info.st_uid != os.geteuid() or info.st_mode & 0o022:
        raise BackupError(f"{place.data_dir} is not yours alone to write: choose another")
    if new or not os.listdir(place.data_dir):
        place.data_dir.chmod(0o711 if place.owners else 0o700)
