"""The users' table: names that are ids, and host uids that are never used twice."""

import os
import pwd
import sqlite3
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.users import NoSuchUser, UserExists, UserNameError, Users, UsersError, check_user_id

BASE = 1_900_000_000


@pytest.fixture
def users(tmp_path: Path) -> Iterator[Users]:
    users = Users(tmp_path / "_system" / "core.db", BASE)
    yield users
    users.close()


def test_users_are_kept_with_uids_of_their_own(users: Users, tmp_path: Path) -> None:
    alice, bob = users.add("alice"), users.add("bob")
    assert (alice.host_uid, bob.host_uid) == (BASE + 1_000, BASE + 1_001)
    users.set_disabled("bob", True)
    users.close()
    again = Users(tmp_path / "_system" / "core.db", BASE)
    assert [(u.name, u.disabled) for u in again.list()] == [("alice", False), ("bob", True)]
    assert again.get("alice") == alice
    again.close()
    mode = (tmp_path / "_system" / "core.db").stat().st_mode
    assert mode & 0o777 == 0o600


def test_a_deleted_users_uid_is_never_given_again_not_even_to_the_same_name(users: Users) -> None:
    users.add("alice")
    last = users.add("bob")
    assert users.delete("bob") == last
    assert users.add("carol").host_uid == last.host_uid + 1
    assert users.add("bob").host_uid == last.host_uid + 2
    users.delete("carol")
    users.delete("bob")
    users.delete("alice")
    assert users.list() == []
    assert users.add("dave").host_uid == last.host_uid + 3


def test_a_number_that_the_host_knows_is_skipped(users: Users, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = {BASE + 1_000, BASE + 1_001}

    def known(uid: int) -> object:
        if uid in taken:
            return object()
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", known)
    assert users.add("alice").host_uid == BASE + 1_002


def test_running_out_of_uids_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    users = Users(tmp_path / "core.db", 2**31 - 1 - 1_001)
    users.add("alice")
    with pytest.raises(UsersError, match="uid_base"):
        users.add("bob")
    assert [user.name for user in users.list()] == ["alice"]
    users.close()


@pytest.mark.parametrize("name", ["a", "0", "alice", "a-b_c9", "x" * 32])
def test_a_good_id_is_taken(name: str) -> None:
    assert check_user_id(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "", "_system", "_keys", ".", "..", "a/b", "/", "-a", "Alice", "ALICE", "a b", "a\0", "a\n",
        "x" * 33, "x" * 300, "аlice", "alicе", "ａlice", "al\u00edce", "ali\u200bce", "ß", "ı",
        unicodedata.normalize("NFC", "e\u0301va"), unicodedata.normalize("NFD", "\u00e9va"),
    ],
)  # fmt: skip
def test_an_id_that_could_be_another_or_a_place_is_refused(users: Users, name: str) -> None:
    with pytest.raises(UserNameError):
        users.add(name)
    assert users.list() == []


def test_what_is_not_there_and_what_is_there_already_are_told(users: Users) -> None:
    for act in (users.get, users.delete, lambda name: users.set_disabled(name, True)):
        with pytest.raises(NoSuchUser):
            act("alice")
    users.add("alice")
    with pytest.raises(UserExists):
        users.add("alice")
    assert len(users.list()) == 1


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    Users(tmp_path / "core.db", BASE).close()
    connection = sqlite3.connect(tmp_path / "core.db")
    connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(UsersError, match="newer"):
        Users(tmp_path / "core.db", BASE)


def test_a_link_in_the_databases_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").touch()
    os.symlink(tmp_path / "elsewhere", tmp_path / "core.db")
    with pytest.raises(OSError, match="symbolic"):
        Users(tmp_path / "core.db", BASE)


def test_a_damaged_file_is_told_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "core.db").write_bytes(b"garbage" * 1_000)
    with pytest.raises(UsersError, match=r"core\.db.*restore it from a backup"):
        Users(tmp_path / "core.db", BASE)
