"""Databases that earlier versions wrote: opened, brought forward with a copy kept, never backward."""

import shutil
import sqlite3
from pathlib import Path

import pytest

import core.sessions.database
import core.users
from core.egress.messages import HandleMinted, VerifyToken
from core.kept_copy import CopyFailed, forget_copies, keep_copy
from core.sessions.database import Database
from core.sessions.errors import StorageError
from core.users import Users, UsersError
from core.vault.handle import UserHandle
from core.vault.vault import Vault

KEPT = Path(__file__).resolve().parents[2] / "kept"
STEP = "ALTER TABLE sessions ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0"
STEP_OF_USERS = "ALTER TABLE users ADD COLUMN quota INTEGER NOT NULL DEFAULT 0"


def _take(name: str, to: Path) -> Path:
    shutil.copyfile(KEPT / name, to)
    to.chmod(0o600)
    return to


def _version(path: Path) -> int:
    db = sqlite3.connect(f"file:{path}?immutable=1", uri=True)
    (version,) = db.execute("PRAGMA user_version").fetchone()
    db.close()
    return int(version)


@pytest.fixture
def alice(tmp_path: Path) -> UserHandle:
    """As the vault of the same age mints it."""
    keys = tmp_path / "_keys"
    keys.mkdir(mode=0o700)
    _take("vault-v1.db", keys / "vault.db")
    _take("vault-v1.master.key", keys / "master.key")
    lines = (KEPT / "README.md").read_text().splitlines()
    token = next(line.split()[-1] for line in lines if line.strip().startswith("alice's token"))
    vault = Vault(keys)
    minted = vault.answer(VerifyToken(1, token))
    vault.close()
    assert isinstance(minted, HandleMinted)
    return UserHandle(minted.user, minted.data_key)


def _said(database: Database, handle: UserHandle) -> list[str]:
    page = database.bind(handle).read_messages("notes", 0, 10, 1 << 20, 10)
    return [message.text for message in page.messages]


def test_old_sessions_open_with_their_owners_handle_and_survive_a_migration(
    tmp_path: Path, alice: UserHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _take("sessions-v1.db", tmp_path / "alice.db")
    wanted = ["remember the old days", "I do."]
    before = _version(path)
    monkeypatch.setattr(core.sessions.database, "MIGRATIONS", (*core.sessions.database.MIGRATIONS, STEP))
    newest = len(core.sessions.database.MIGRATIONS)
    database = Database(path)
    assert _said(database, alice) == wanted
    assert database.connection.execute("SELECT pinned FROM sessions").fetchall() == [(0,)]
    database.close()
    copy = tmp_path / f"alice.db.v{before}"
    assert copy.stat().st_mode & 0o777 == 0o600
    assert (_version(path), _version(copy)) == (newest, before)
    # going back: the copy is a whole database of before
    shutil.copyfile(copy, path)
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    monkeypatch.undo()
    database = Database(path)
    assert _said(database, alice) == wanted
    database.close()


def test_without_a_copy_sessions_are_not_migrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _take("sessions-v1.db", tmp_path / "alice.db")
    steps = (*core.sessions.database.MIGRATIONS, STEP)
    Database(path).close()
    before = _version(path)
    in_the_way = tmp_path / f"alice.db.v{before}"
    in_the_way.mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(core.sessions.database, "MIGRATIONS", steps)
        with pytest.raises(StorageError, match="is not migrated"):
            Database(path)
    assert _version(path) == before
    in_the_way.rmdir()
    Database(path).close()
    assert _version(path) == len(steps) - 1


def test_old_users_are_migrated_with_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _take("core-v1.db", tmp_path / "core.db")
    monkeypatch.setattr(core.users, "MIGRATIONS", (*core.users.MIGRATIONS, STEP_OF_USERS))
    newest = len(core.users.MIGRATIONS)
    users = Users(path, 1_900_000_000)
    assert [(user.name, user.disabled) for user in users.list()] == [("alice", False), ("bob", True)]
    users.close()
    assert (_version(path), _version(tmp_path / f"core.db.v{newest - 1}")) == (newest, newest - 1)
    (tmp_path / "other").mkdir()
    path = _take("core-v1.db", tmp_path / "other" / "core.db")
    (tmp_path / "other" / f"core.db.v{newest - 1}").mkdir()
    with pytest.raises(UsersError, match="is not migrated"):
        Users(path, 1_900_000_000)
    assert _version(path) == newest - 1


def test_a_copy_is_whole_replaces_one_before_it_and_can_be_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "some.db"
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("CREATE TABLE t (x)")
    for number in range(2):
        db.execute("INSERT INTO t VALUES (?)", (number,))
        (tmp_path / "some.db.v7.new").write_bytes(b"left by a crash")
        copy = keep_copy(db, path, 7)
        found = sqlite3.connect(f"file:{copy}?immutable=1", uri=True)
        assert len(found.execute("SELECT x FROM t").fetchall()) == number + 1
        found.close()
    db.close()
    assert sorted(p.name for p in tmp_path.glob("some.db.v*")) == ["some.db.v7"]
    forget_copies(path)
    assert not list(tmp_path.glob("some.db.v*"))
    assert path.exists()


def test_a_damaged_database_is_no_copy(tmp_path: Path) -> None:
    path = tmp_path / "some.db"
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("CREATE TABLE t (x)")
    db.execute("CREATE INDEX i ON t (x)")
    db.execute("BEGIN")  # one commit: each waits for the disk
    db.executemany("INSERT INTO t VALUES (?)", [(n,) for n in range(5_000)])
    db.execute("COMMIT")
    db.close()
    data = bytearray(path.read_bytes())
    data[8_192:12_288] = bytes(4_096)
    path.write_bytes(data)
    db = sqlite3.connect(path, isolation_level=None)
    with pytest.raises(CopyFailed):
        keep_copy(db, path, 1)
    db.close()
    assert not list(tmp_path.glob("some.db.v*"))
