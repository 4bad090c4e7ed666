"""The vault keeps what it is given, refuses what is not its own, and forgets for good."""

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.egress.messages import (
    AddUser,
    HandleMinted,
    ListTokens,
    NewToken,
    Ok,
    Refused,
    RemoveUser,
    RevokeToken,
    SetUserDisabled,
    TokenMade,
    TokenRejected,
    Tokens,
    VerifyToken,
)
from core.errors import SealError
from core.vault.errors import VaultError
from core.vault.handle import UserHandle
from core.vault.keys import MasterKey, load_master_key
from core.vault.tokens import make_token
from core.vault.vault import Vault

Opener = Callable[..., Vault]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opener]:
    """Opens the vault in ``tmp_path``; what is open at the end is closed."""
    vaults: list[Vault] = []

    def open_vault(**clocks: Any) -> Vault:
        while vaults:
            vaults.pop().close()
        vaults.append(Vault(tmp_path / "_keys", **clocks))
        return vaults[-1]

    yield open_vault
    while vaults:
        vaults.pop().close()


def _token(vault: Vault, user: str = "alice", label: str = "laptop") -> TokenMade:
    made = vault.answer(NewToken(1, user, label))
    assert isinstance(made, TokenMade)
    return made


def _handle(vault: Vault, token: str) -> UserHandle:
    minted = vault.answer(VerifyToken(1, token))
    assert isinstance(minted, HandleMinted)
    return UserHandle(minted.user, minted.data_key)


def test_a_token_opens_its_own_user_after_a_restart_too(opened: Opener) -> None:
    vault = opened()
    assert vault.answer(AddUser(5, "alice")) == Ok(5)
    made = _token(vault)
    sealed = _handle(vault, made.token).seal("place", b"a letter")
    assert _handle(opened(), made.token).open("place", sealed) == b"a letter"


def test_adding_a_user_again_keeps_the_key(opened: Opener) -> None:
    vault = opened()
    vault.answer(AddUser(1, "alice"))
    made = _token(vault)
    sealed = _handle(vault, made.token).seal("place", b"x")
    assert vault.answer(AddUser(2, "alice")) == Ok(2)
    assert _handle(vault, made.token).open("place", sealed) == b"x"


def test_two_users_have_different_keys(opened: Opener) -> None:
    vault = opened()
    for user in ("alice", "bob"):
        vault.answer(AddUser(1, user))
    alice = _handle(vault, _token(vault, "alice").token)
    bob = _handle(vault, _token(vault, "bob").token)
    assert (alice.user, bob.user) == ("alice", "bob")
    with pytest.raises(SealError):
        bob.open("place", alice.seal("place", b"x"))


@pytest.mark.parametrize(
    "user",
    ["", "_system", "..", "a/b", "Alice", "al\0ice", "a" * 33, "-a", "älice", "alice\n", "a b", "а"],
)
def test_a_user_id_outside_the_pattern_is_refused(opened: Opener, user: str) -> None:
    assert isinstance(opened().answer(AddUser(1, user)), Refused)


def test_every_bad_token_is_refused_in_the_same_words(opened: Opener) -> None:
    vault = opened()
    vault.answer(AddUser(1, "alice"))
    vault.answer(AddUser(1, "bob"))
    good, revoked, of_disabled = _token(vault), _token(vault), _token(vault, "bob")
    vault.answer(RevokeToken(1, revoked.token_id))
    vault.answer(SetUserDisabled(1, "bob", True))
    bad = [
        revoked.token,
        of_disabled.token,
        make_token().token,
        good.token[:-1],
        good.token + "a",
        good.token.upper(),
        good.token[:14] + revoked.token[14:],
        good.token_id,
        "",
        "\0" * 90,
        "\ud800",
    ]
    answers = {vault.answer(VerifyToken(7, token)) for token in bad}
    assert len(answers) == 1
    assert answers.pop() == TokenRejected(7)
    assert _handle(vault, good.token).user == "alice"


def test_a_disabled_user_may_be_enabled_again(opened: Opener) -> None:
    vault = opened()
    vault.answer(AddUser(1, "alice"))
    made = _token(vault)
    vault.answer(SetUserDisabled(1, "alice", True))
    assert isinstance(vault.answer(VerifyToken(1, made.token)), TokenRejected)
    vault.answer(SetUserDisabled(1, "alice", False))
    assert _handle(vault, made.token).user == "alice"


def test_what_was_sealed_for_a_removed_user_never_opens_again(opened: Opener, tmp_path: Path) -> None:
    vault = opened()
    vault.answer(AddUser(1, "alice"))
    made = _token(vault)
    sealed = _handle(vault, made.token).seal("place", b"x")
    with sqlite3.connect(tmp_path / "_keys" / "vault.db") as db:
        (salt,) = db.execute("SELECT salt FROM users").fetchone()
    db.close()

    assert vault.answer(RemoveUser(2, "alice")) == Ok(2)
    assert isinstance(vault.answer(VerifyToken(3, made.token)), TokenRejected)
    left = b"".join(path.read_bytes() for path in (tmp_path / "_keys").glob("vault.db*"))
    assert salt not in left
    vault.answer(AddUser(4, "alice"))
    with pytest.raises(SealError):
        _handle(vault, _token(vault).token).open("place", sealed)


def test_removing_a_user_who_never_was_is_ok(opened: Opener) -> None:
    assert opened().answer(RemoveUser(9, "nobody")) == Ok(9)


def test_what_concerns_no_user_and_no_token_is_refused(opened: Opener) -> None:
    vault = opened()
    for question in (
        SetUserDisabled(1, "nobody", True),
        NewToken(1, "nobody", ""),
        RevokeToken(1, "nothing"),
    ):
        assert isinstance(vault.answer(question), Refused)


@pytest.mark.parametrize("label", ["x" * 65, "two\nlines", "\x1b[31m"])
def test_a_label_that_could_not_be_shown_is_refused(opened: Opener, label: str) -> None:
    vault = opened()
    vault.answer(AddUser(1, "alice"))
    assert isinstance(vault.answer(NewToken(1, "alice", label)), Refused)


def test_a_user_has_a_bounded_number_of_tokens(opened: Opener) -> None:
    vault = opened()
    vault.answer(AddUser(1, "alice"))
    answers = [vault.answer(NewToken(1, "alice", "")) for _ in range(257)]
    assert isinstance(answers[-1], Refused)
    assert all(isinstance(answer, TokenMade) for answer in answers[:-1])


def test_lists_show_live_tokens_and_when_each_was_used(opened: Opener) -> None:
    now = [1_000.0]
    vault = opened(wall_s=lambda: now[0])
    for user in ("alice", "bob"):
        vault.answer(AddUser(1, user))
    used, gone, other = _token(vault), _token(vault), _token(vault, "bob", "phone")
    vault.answer(RevokeToken(1, gone.token_id))
    now[0] = 2_000.0
    vault.answer(VerifyToken(1, used.token))

    of_alice = vault.answer(ListTokens(1, "alice"))
    assert isinstance(of_alice, Tokens)
    assert [(t.token_id, t.created_s, t.last_used_s) for t in of_alice.tokens] == [
        (used.token_id, 1_000, 2_000)
    ]
    of_all = vault.answer(ListTokens(1, ""))
    assert isinstance(of_all, Tokens)
    assert {t.token_id for t in of_all.tokens} == {used.token_id, other.token_id}


def test_the_last_use_is_written_once_a_minute_and_at_the_end(opened: Opener, tmp_path: Path) -> None:
    clock = [0.0]
    vault = opened(clock_s=lambda: clock[0], wall_s=lambda: 5_000.0)
    vault.answer(AddUser(1, "alice"))
    made = _token(vault)

    def stored() -> int | None:
        db = sqlite3.connect(tmp_path / "_keys" / "vault.db")
        try:
            (value,) = db.execute("SELECT last_used_s FROM tokens").fetchone()
        finally:
            db.close()
        return value if value is None else int(value)

    for _ in range(3):
        _handle(vault, made.token)
    assert stored() is None
    clock[0] = 61.0
    _handle(vault, made.token)
    assert stored() == 5_000


def test_files_and_directory_are_for_this_uid_alone(opened: Opener, tmp_path: Path) -> None:
    opened().answer(AddUser(1, "alice"))
    keys = tmp_path / "_keys"
    assert stat.S_IMODE(keys.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in keys.iterdir()}
    assert set(modes) >= {"master.key", "vault.db", "vault.db-wal", "lock"}
    assert set(modes.values()) == {0o600}
    assert (keys / "master.key").stat().st_size == 32


def test_a_second_process_does_not_get_the_vault(opened: Opener, tmp_path: Path) -> None:
    vault = opened()
    with pytest.raises(VaultError, match="another process"):
        Vault(tmp_path / "_keys")
    assert vault.answer(AddUser(1, "alice")) == Ok(1)


def _refused(tmp_path: Path, words: str) -> None:
    with pytest.raises(VaultError, match=words):
        Vault(tmp_path / "_keys")


def test_another_master_key_is_noticed(opened: Opener, tmp_path: Path) -> None:
    opened().close()
    key = tmp_path / "_keys" / "master.key"
    right = key.read_bytes()
    key.write_bytes(os.urandom(32))
    _refused(tmp_path, "this master key did not make this vault")
    key.write_bytes(right)
    Vault(tmp_path / "_keys").close()


@pytest.mark.parametrize("size", [0, 31, 33, 4_096])
def test_a_master_key_of_the_wrong_size_is_refused(opened: Opener, tmp_path: Path, size: int) -> None:
    opened().close()
    (tmp_path / "_keys" / "master.key").write_bytes(bytes(size))
    _refused(tmp_path, "a master key has 32")


@pytest.mark.parametrize("name", ["master.key", "vault.db"])
@pytest.mark.parametrize("mode", [0o604, 0o640, 0o620])
def test_a_file_others_can_reach_is_refused(opened: Opener, tmp_path: Path, name: str, mode: int) -> None:
    opened().close()
    path = tmp_path / "_keys" / name
    path.chmod(mode)
    _refused(tmp_path, "lets others in; run chmod 600")
    path.chmod(0o600)
    Vault(tmp_path / "_keys").close()


def test_a_directory_others_can_reach_is_refused(opened: Opener, tmp_path: Path) -> None:
    opened().close()
    (tmp_path / "_keys").chmod(0o755)
    _refused(tmp_path, "run chmod 700")


@pytest.mark.parametrize("name", ["master.key", "vault.db"])
def test_a_link_in_place_of_a_file_is_refused(opened: Opener, tmp_path: Path, name: str) -> None:
    opened().close()
    path = tmp_path / "_keys" / name
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    _refused(tmp_path, "symbolic link")


@pytest.mark.parametrize("name", ["master.key", "vault.db"])
def test_a_fifo_in_place_of_a_file_is_refused_at_once(opened: Opener, tmp_path: Path, name: str) -> None:
    opened().close()
    path = tmp_path / "_keys" / name
    path.unlink()
    os.mkfifo(path, 0o600)
    _refused(tmp_path, "regular file")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_another_owners_key_is_refused(opened: Opener, tmp_path: Path) -> None:
    opened().close()
    os.chown(tmp_path / "_keys" / "master.key", 12_345, 12_345)
    _refused(tmp_path, "belongs to uid 12345")


def test_a_lost_master_key_is_never_replaced(opened: Opener, tmp_path: Path) -> None:
    vault = opened()
    vault.answer(AddUser(1, "alice"))
    vault.close()
    key = tmp_path / "_keys" / "master.key"
    key.unlink()
    _refused(tmp_path, "restore it from a backup")
    assert not key.exists()


def test_a_key_left_half_made_by_a_crash_is_made_anew(tmp_path: Path) -> None:
    keys = tmp_path / "_keys"
    keys.mkdir(mode=0o700)
    (keys / "master.key.new").write_bytes(b"half")
    Vault(keys).close()
    assert (keys / "master.key").stat().st_size == 32
    assert not (keys / "master.key.new").exists()


def test_a_newer_schema_is_refused_and_left_alone(opened: Opener, tmp_path: Path) -> None:
    opened().close()
    db = sqlite3.connect(tmp_path / "_keys" / "vault.db")
    db.execute("UPDATE schema_version SET version = 99")
    db.commit()
    db.close()
    _refused(tmp_path, "schema version 99")
    db = sqlite3.connect(tmp_path / "_keys" / "vault.db")
    assert db.execute("SELECT version FROM schema_version").fetchall() == [(99,)]
    db.close()


def test_a_file_that_is_no_database_is_refused(opened: Opener, tmp_path: Path) -> None:
    opened().close()
    (tmp_path / "_keys" / "vault.db").write_bytes(os.urandom(8_192))
    _refused(tmp_path, "restore it from a backup")


def test_keys_are_derived_as_documented_and_never_shown() -> None:
    master = MasterKey(bytes(range(32)))
    # RFC 5869 with this key, salt 32 x 01 and info "certosa/1 user data key\0alice": a changed
    # derivation would lock every user out, so it is pinned
    key = master.data_key("alice", b"\x01" * 32)
    assert key == _hkdf(bytes(range(32)), b"\x01" * 32, b"certosa/1 user data key\0alice")
    assert key != master.data_key("alic", b"\x01" * 32)
    assert key != master.data_key("alice", b"\x02" * 32)
    assert bytes(range(32)).hex() not in repr(master)
    assert repr(master) == "MasterKey()"


def _hkdf(key: bytes, salt: bytes, info: bytes) -> bytes:
    """RFC 5869 for one block, from its definition."""
    import hmac

    extracted = hmac.digest(salt, key, "sha256")
    return hmac.digest(extracted, info + b"\x01", "sha256")


def test_a_fresh_token_shows_its_id_alone() -> None:
    fresh = make_token()
    assert fresh.token not in repr(fresh)
    assert fresh.token.startswith(f"cts_{fresh.token_id}")
    assert len(fresh.token) == 66


def test_a_key_that_cannot_be_made_says_where(tmp_path: Path) -> None:
    with pytest.raises(VaultError, match=r"master\.key: cannot be made"):
        load_master_key(tmp_path / "missing" / "master.key", vault_exists=False)
