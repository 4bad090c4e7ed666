"""A data directory, backed up and restored: the same, as the right owners, or not at all."""

import contextlib
import errno
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from core.backup import sealing
from core.backup.archive import STAGING, Place, make_backup, restore, verify
from core.backup.checking import Checker
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
    Link,
    Record,
    Same,
    User,
    pack,
)
from core.cli import main
from core.egress.messages import AddUser, NewToken
from core.users import Users
from core.vault.vault import Vault
from tests.fakes.data_dir import KEY, UID_BASE, fill, handle_of, place_at, said

PASSPHRASE = "correct horse battery staple"
ROOT = os.geteuid() == 0


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A passphrase costs half a second and 128 MiB each time; not here."""
    cheap = sealing.SealedWriter.__init__.__defaults__
    assert cheap == (17,)
    monkeypatch.setattr(sealing.SealedWriter.__init__, "__defaults__", (6,))


@pytest.fixture(scope="module")
def outer() -> Iterator[Path]:
    """Where other uids may pass through."""
    directory = Path(tempfile.mkdtemp(prefix="certosa-backup-", dir="/var/lib" if ROOT else None))
    directory.chmod(0o711)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def tokens(outer: Path) -> dict[str, str]:
    return fill(outer / "data")


@pytest.fixture
def place(outer: Path, tokens: dict[str, str]) -> Place:
    return place_at(outer / "data")


@pytest.fixture
def made(place: Place, outer: Path, tmp_path: Path) -> Path:
    """A backup of it."""
    kept = outer / "kept.backup"
    if not kept.exists():
        make_backup(place, kept, PASSPHRASE)
    return Path(shutil.copyfile(kept, tmp_path / "file.backup"))


@pytest.fixture
def target(outer: Path) -> Iterator[Place]:
    """Where nothing is yet."""
    yield place_at(outer / "new" / "data")
    shutil.rmtree(outer / "new", ignore_errors=True)


def _portrait(data_dir: Path) -> dict[str, tuple[object, ...]]:
    """Owner, mode, kind and content of everything, except what a backup makes anew or leaves out."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(data_dir.rglob("*")):
        name = str(path.relative_to(data_dir))
        info = path.lstat()
        what: object = None
        if stat.S_ISLNK(info.st_mode):
            what = os.readlink(path)
        elif stat.S_ISREG(info.st_mode):
            what = path.read_bytes()
        elif not stat.S_ISDIR(info.st_mode):
            continue
        if name in ("_keys/lock", "_keys/first-admin-token", "_run") or name.endswith(("-wal", "-shm")):
            continue
        if name.endswith(".db"):
            what = "database"  # compared by what is in it
        time_ns = info.st_mtime_ns if name.endswith("hello.txt") else 0
        found[name] = (info.st_uid, info.st_gid, info.st_mode & ~0o6000, what, time_ns)
    return found


def test_what_was_backed_up_is_restored_the_same_and_as_the_right_owners(
    place: Place, made: Path, target: Place, tokens: dict[str, str]
) -> None:
    report = restore(target, made, PASSPHRASE)
    before, after = _portrait(place.data_dir), _portrait(target.data_dir)
    assert before.keys() == after.keys()
    differ = {name for name in before if before[name] != after[name]}
    # who could read these was the user's group; now it is everybody whom the directory lets in
    assert differ == ({f"users/{user}/agents/pirate.toml" for user in tokens} if ROOT else set())
    assert stat.S_IMODE((target.data_dir / "users/alice/agents/pirate.toml").stat().st_mode) == (
        0o644 if ROOT else 0o640
    )
    script = target.data_dir / "users" / "alice" / "home" / "again.sh"
    assert stat.S_IMODE(script.stat().st_mode) == 0o755, "no setuid bit"
    assert script.samefile(script.with_name("run.sh"))
    assert [user.name for user in report.users] == ["alice", "bob"]
    assert sorted(line.split(":")[0] for line in report.left_out) == ["alice/pipe", "bob/pipe"]
    assert not (target.data_dir / STAGING).exists()
    assert stat.S_IMODE(target.data_dir.stat().st_mode) == (0o711 if ROOT else 0o700)


def test_restored_tokens_and_keys_open_the_restored_sessions(
    made: Path, target: Place, tokens: dict[str, str], tmp_path: Path
) -> None:
    restore(target, made, PASSPHRASE)
    keys = shutil.copytree(target.data_dir / "_keys", tmp_path / "keys")
    for path in (keys, *keys.iterdir()):
        os.chown(path, os.geteuid(), os.getegid())
    vault = Vault(keys)
    try:
        for name, token in tokens.items():
            copy = shutil.copyfile(target.data_dir / "sealed" / f"{name}.db", tmp_path / f"{name}.db")
            copy.chmod(0o600)
            assert said(copy, handle_of(vault, token)) == [f"I am {name}"]
    finally:
        vault.close()
    users = Users(target.data_dir / "_system" / "core.db", UID_BASE)
    assert [user.name for user in users.list()] == ["alice", "bob"]
    users.close()


def test_databases_are_whole_while_others_write_to_them(
    place: Place, target: Place, outer: Path, tmp_path: Path
) -> None:
    """An open transaction and a log that is not written back are what a running server has."""
    copied = shutil.copytree(
        place.data_dir, outer / "busy", symlinks=True, ignore=shutil.ignore_patterns("pipe", "*.sock")
    )
    try:
        if not ROOT:
            vault = Vault(copied / "_keys")
            vault.answer(AddUser(1, "carol"))
            vault.answer(NewToken(1, "carol", ""))
        else:
            for path in copied.rglob("*"):
                there = place.data_dir / path.relative_to(copied)
                info = there.lstat()
                os.chown(path, info.st_uid, info.st_gid, follow_symlinks=False)
        users = Users(copied / "_system" / "core.db", UID_BASE)
        users.add("carol")
        with users._transaction() as db:
            db.execute("INSERT INTO retired_uids VALUES (5, 5)")
            make_backup(place_at(copied), tmp_path / "busy.backup", PASSPHRASE)
        users.close()
        if not ROOT:
            vault.close()
    finally:
        shutil.rmtree(copied)
    report = restore(target, tmp_path / "busy.backup", PASSPHRASE)
    assert [user.name for user in report.users] == ["alice", "bob", "carol"]
    restored = Users(target.data_dir / "_system" / "core.db", UID_BASE)
    with restored._transaction() as db:
        assert db.execute("SELECT * FROM retired_uids").fetchall() == []
    restored.close()


def test_nothing_in_the_file_can_be_read_without_the_passphrase(made: Path, tokens: dict[str, str]) -> None:
    data = made.read_bytes()
    for secret in (KEY.encode(), b"hello alice", b"I am alice", b"alice", b"SQLite format"):
        assert secret not in data
    assert made.stat().st_size > 0
    with pytest.raises(BackupError, match="passphrase is wrong"):
        verify(made, PASSPHRASE + "!")
    assert len(verify(made, PASSPHRASE).users) == 2


def _cut(data: bytes) -> bytes:
    return data[:-1]


def _cut_at_a_chunk(data: bytes) -> bytes:
    at = data.index(b"}") + 1
    length = int.from_bytes(data[at : at + 4], "big")
    return data[: at + 4 + length]


def _swap_chunks(data: bytes) -> bytes:
    at = data.index(b"}") + 1
    pieces = []
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        pieces.append(data[at:end])
        at = end
    assert len(pieces) > 2
    return data[: data.index(b"}") + 1] + b"".join([pieces[1], pieces[0], *pieces[2:]])


def _flip(at: float) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        place = int(len(data) * at)
        return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]

    return change


@pytest.mark.parametrize(
    "change",
    [
        _cut, _cut_at_a_chunk, _swap_chunks, _flip(0.0), _flip(0.00002), _flip(0.3), _flip(0.999999),
        lambda data: data + b"x", lambda data: data[:10], lambda _: b"", lambda data: data[:100],
    ],
    ids=["cut", "cut at a chunk", "swapped", "magic", "header", "middle", "end", "more", "10", "none", "100"],
)  # fmt: skip
def test_a_changed_or_cut_file_is_said_to_be_and_leaves_nothing(
    made: Path, target: Place, change: Callable[[bytes], bytes]
) -> None:
    made.write_bytes(change(made.read_bytes()))
    with pytest.raises(BackupError):
        verify(made, PASSPHRASE)
    with pytest.raises(BackupError):
        restore(target, made, PASSPHRASE)
    assert not target.data_dir.parent.exists()


def test_a_file_changed_after_it_was_checked_leaves_nothing_either(
    made: Path, target: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = verify(made, PASSPHRASE)
    made.write_bytes(_flip(0.9)(made.read_bytes()))
    with monkeypatch.context() as patch:
        patch.setattr("core.backup.archive.verify", lambda *_: report)
        with pytest.raises(BackupError, match="damaged or was changed"):
            restore(target, made, PASSPHRASE)
    assert not target.data_dir.parent.exists()


def test_a_directory_that_is_in_use_is_not_restored_into(place: Place, made: Path, target: Place) -> None:
    with pytest.raises(BackupError, match="of a server already"):
        restore(place, made, PASSPHRASE)
    assert (place.data_dir / "users" / "alice" / "home" / "pipe").is_fifo()
    (target.data_dir / "other").mkdir(parents=True)
    (target.data_dir / STAGING).mkdir()
    with pytest.raises(BackupError, match="cut short"):
        restore(target, made, PASSPHRASE)
    (target.data_dir / STAGING).rmdir()
    target.data_dir.chmod(0o711)
    restore(target, made, PASSPHRASE)
    assert (target.data_dir / "other").is_dir()


def test_a_backup_does_not_replace_a_file_and_a_failed_one_leaves_none(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "there"
    there.write_text("mine")
    with pytest.raises(BackupError, match="exists already"):
        make_backup(place, there, PASSPHRASE)
    assert there.read_text() == "mine"
    with pytest.raises(BackupError, match="no data directory"):
        make_backup(place_at(tmp_path), tmp_path / "new", PASSPHRASE)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("core.backup.archive.os.fsync", full)
        with pytest.raises(BackupError, match="No space left"):
            make_backup(place, tmp_path / "new", PASSPHRASE)
    assert os.listdir(tmp_path) == ["there"]


def test_a_home_that_is_shut_or_too_deep_ends_nobodys_backup(
    place: Place, target: Place, tmp_path: Path
) -> None:
    shut, deep = (place.data_dir / "users" / name / "home" for name in ("alice", "bob"))
    mode = stat.S_IMODE(shut.stat().st_mode)
    shut.chmod(0)
    names = ["d" * 250] * 17
    fd = os.open(deep, os.O_RDONLY)
    for name in names:
        os.mkdir(name, dir_fd=fd)
        if ROOT:
            os.chown(name, deep.stat().st_uid, deep.stat().st_gid, dir_fd=fd)
        below = os.open(name, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    try:
        make_backup(place, tmp_path / "file", PASSPHRASE)
    finally:
        shut.chmod(mode)
        shutil.rmtree(deep / names[0])
    report = restore(target, tmp_path / "file", PASSPHRASE)
    assert "alice/.: Permission denied" in report.left_out
    assert any(line.endswith("too long a path") for line in report.left_out)
    assert (target.data_dir / "users/bob/home/again.sh").exists()
    assert os.path.isdir(target.data_dir / "users/bob/home" / "/".join(names[:16]))


GIB = 1 << 30


def test_what_takes_little_room_in_a_home_takes_little_in_a_backup_too(
    place: Place, target: Place, tmp_path: Path
) -> None:
    home = place.data_dir / "users" / "alice" / "home"
    there = home / "there"
    there.mkdir()
    (there / "hollow").touch()
    os.truncate(there / "hollow", 500 * GIB)
    with (there / "islands").open("wb") as file:
        for at in (0, 3 * GIB, 7 * GIB):
            file.seek(at)
            file.write(b"land" * 2_000)
        file.truncate(9 * GIB)
    (there / "first").write_bytes(os.urandom(1 << 20))
    for n in range(200):
        os.link(there / "first", there / f"name-{n}")
    if ROOT:
        for path in (there, *there.iterdir()):
            os.chown(path, home.stat().st_uid, home.stat().st_gid)
    file_ = tmp_path / "file"
    try:
        made = make_backup(place, file_, PASSPHRASE)
    finally:
        content = (there / "first").read_bytes()
        shutil.rmtree(there)
    assert file_.stat().st_size < 8 << 20
    report = restore(target, file_, PASSPHRASE)
    assert report == made
    new = target.data_dir / "users" / "alice" / "home" / "there"
    assert (new / "name-7").read_bytes() == content
    assert (new / "first").stat().st_nlink == 201
    assert ((new / "hollow").stat().st_size, (new / "hollow").stat().st_blocks) == (500 * GIB, 0)
    with (new / "islands").open("rb") as file:
        for at in (0, 3 * GIB, 7 * GIB):
            file.seek(at)
            assert file.read(8_001) == b"land" * 2_000 + b"\0"
    assert (new / "islands").stat().st_size == 9 * GIB
    assert (new / "islands").stat().st_blocks < 1_000


def test_any_number_of_things_left_out_is_counted_and_a_thousand_are_named(
    place: Place, tmp_path: Path
) -> None:
    pipes = place.data_dir / "users" / "alice" / "home" / "pipes"
    pipes.mkdir()
    for n in range(1_100):
        os.mkfifo(pipes / str(n))
    if ROOT:
        info = pipes.parent.stat()
        os.chown(pipes, info.st_uid, info.st_gid)
    try:
        report = make_backup(place, tmp_path / "file", PASSPHRASE)
    finally:
        shutil.rmtree(pipes)
    assert len(report.left_out) == 1_000
    assert report.more_left_out == 102  # and a pipe of each user's


def test_a_backup_is_written_where_there_are_no_hard_links(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"

    def no_link(source: Path, target: Path) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("core.backup.archive.os.link", no_link)
    make_backup(place, file, PASSPHRASE)
    assert len(verify(file, PASSPHRASE).users) == 2
    assert os.listdir(tmp_path) == ["file"]

    def taken_meanwhile(source: Path, target: Path) -> None:
        target.write_text("mine")
        no_link(source, target)

    monkeypatch.setattr("core.backup.archive.os.link", taken_meanwhile)
    with pytest.raises(BackupError, match="File exists"):
        make_backup(place, tmp_path / "other", PASSPHRASE)
    assert (tmp_path / "other").read_text() == "mine"


# ---- what somebody made by hand, who knows the passphrase ---------------------------------------------


def by_hand(file: Path, *records: Record, version: int = VERSION) -> None:
    """A backup of alice with these records in her home, and all else as it has to be."""
    whole = [
        Begin(version, 1, (User("alice", UID_BASE + 1_000),)), Area("_system"), Area("_keys"), Area("sealed"),
        Area("home", "alice"), *records,
    ]  # fmt: skip
    checker = Checker()
    with contextlib.suppress(BackupError):
        for record in whole:
            checker.take(record)
    with file.open("wb") as out:
        sealed = sealing.SealedWriter(out, PASSPHRASE)
        for record in (*whole, End(checker.report.files, checker.report.bytes)):
            sealed.write(pack(record))
        sealed.finish()


def a_file(path: bytes, data: bytes = b"x") -> tuple[Record, ...]:
    return File(path, 0o600, 0), Data(data), FileEnd(len(data), hashlib.sha256(data).digest())


def hollow(path: bytes, *sizes: int) -> tuple[Record, ...]:
    holes = [Hole(size) for size in sizes]
    digest = hashlib.sha256(b"".join(hole.mark for hole in holes)).digest()
    return File(path, 0o600, 0), *holes, FileEnd(sum(sizes), digest)


BY_HAND: dict[str, tuple[Record, ...]] = {
    "another name of nothing": (Same(b"b", b"a"),),
    "another name of a link": (*a_file(b"a"), Link(b"l", b"/etc/passwd"), Same(b"b", b"l")),
    "another name through a link": (*a_file(b"a"), Link(b"l", b"/etc"), Same(b"b", b"l/passwd")),
    "another name behind a link": (*a_file(b"a"), Link(b"l", b"/etc"), Same(b"l/b", b"a")),
    "another name above": (*a_file(b"a"), Same(b"../b", b"a")),
    "another name from above": (*a_file(b"a"), Same(b"b", b"../../../_keys/master.key")),
    "another name of a folder": (Folder(b"d", 0o700), Same(b"b", b"d")),
    "another name twice": (*a_file(b"a"), Same(b"b", b"a"), Same(b"b", b"a")),
    "a file above": a_file(b"../../bob"),
    "an absolute path": a_file(b"/etc/cron.d/x"),
    "a file behind a link": (Link(b"l", b"/etc"), *a_file(b"l/x")),
    "a file in a file": (*a_file(b"a"), *a_file(b"a/b")),
    "a file without its folder": a_file(b"d/x"),
    "a folder twice": (Folder(b"d", 0o700), Folder(b"d", 0o700)),
    "a hole outside of a file": (Hole(5),),
    "more hole than files may be large": hollow(b"a", *[2**53] * 1_100),
    "a wrong hash": (File(b"a", 0o600, 0), Data(b"x"), FileEnd(1, bytes(32))),
    "another user's home": (Area("home", "bob"), *a_file(b"a")),
    "an area twice": (Area("home", "alice"), *a_file(b"a")),
    "another beginning": (Begin(VERSION, 1, ()),),
}


@pytest.mark.parametrize("records", BY_HAND.values(), ids=BY_HAND.keys())
def test_a_backup_made_by_hand_reaches_nothing_outside_and_leaves_nothing(
    target: Place, tmp_path: Path, records: tuple[Record, ...]
) -> None:
    by_hand(tmp_path / "file", *records)
    with pytest.raises(BackupError):
        restore(target, tmp_path / "file", PASSPHRASE)
    assert not target.data_dir.parent.exists()


def test_one_made_by_hand_that_is_right_is_restored(target: Place, tmp_path: Path) -> None:
    good = (
        Folder(b"d", 0o700),
        *a_file(b"d/a"),
        Same(b"b", b"d/a"),
        *hollow(b"h", 5, 7),
        Link(b"l", b"/etc"),
    )
    by_hand(tmp_path / "file", *good)
    restore(target, tmp_path / "file", PASSPHRASE)
    home = target.data_dir / "users" / "alice" / "home"
    assert (home / "b").samefile(home / "d" / "a")
    assert (home / "h").read_bytes() == bytes(12)


def test_a_backup_of_the_first_version_is_read_and_one_of_a_later_is_not(tmp_path: Path) -> None:
    by_hand(tmp_path / "old", *a_file(b"a"), version=1)
    assert verify(tmp_path / "old", PASSPHRASE).files == 1
    by_hand(tmp_path / "new", *a_file(b"a"), version=VERSION + 1)
    with pytest.raises(BackupError, match="use a newer one"):
        verify(tmp_path / "new", PASSPHRASE)


@pytest.mark.skipif(not ROOT, reason="users have uids of their own only where root starts the server")
def test_host_uids_that_cannot_be_are_told_before_anything_is_written(made: Path, target: Place) -> None:
    with pytest.raises(BackupError, match=r"set jail\.uid_base"):
        restore(target._replace(user_uids=range(5, 10)), made, PASSPHRASE)
    assert not target.data_dir.exists()


def test_the_command_line_makes_checks_and_restores(
    place: Place,
    target: Place,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = tmp_path / "certosa.toml"
    config.write_text(f"[jail]\nuid_base = {UID_BASE}\n")
    secret = tmp_path / "passphrase"
    secret.write_text(PASSPHRASE + "\n")
    file = str(tmp_path / "out.backup")

    def run(*words: str, data: Path = place.data_dir) -> int:
        return main(
            ["--config", str(config), "--data-dir", str(data), *words, "--passphrase-file", str(secret)]
        )

    assert run("backup", file) == 1
    assert "chmod 600" in capsys.readouterr().err
    secret.chmod(0o600)
    assert run("backup", file) == 0
    assert run("backup", "--verify", file) == 0
    assert run("restore", file, data=target.data_dir) == 0
    assert "2 users" in capsys.readouterr().out
    assert (target.data_dir / "users" / "bob" / "home" / "notes" / "hello.txt").read_text() == "hello bob"
    secret.write_text("short")
    assert run("backup", str(tmp_path / "other")) == 2
    assert run("backup", "--verify", file) == 1
    assert "passphrase is wrong" in capsys.readouterr().err
