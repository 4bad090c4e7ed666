"""Administrators' tokens: a kind of their own. And a vault that an earlier version wrote."""

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

import core.vault.schema
from core.egress.first_token import FILE, show_first_token
from core.egress.messages import (
    AddUser,
    AdminVerified,
    HandleMinted,
    ListAdminTokens,
    ListTokens,
    NewAdminToken,
    NewToken,
    Ok,
    Refused,
    RemoveUser,
    RevokeToken,
    TokenMade,
    TokenRejected,
    Tokens,
    VerifyAdminToken,
    VerifyToken,
)
from core.vault.errors import VaultError
from core.vault.tokens import is_token, make_token, public_id
from core.vault.vault import Vault

KEPT = Path(__file__).resolve().parents[2] / "kept"


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[Vault]:
    opened = Vault(tmp_path / "_keys")
    yield opened
    opened.close()


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A vault's directory of schema version 1."""
    keys = tmp_path / "_keys"
    keys.mkdir(mode=0o700)
    for source, name in (("vault-v1.db", "vault.db"), ("vault-v1.master.key", "master.key")):
        shutil.copyfile(KEPT / source, keys / name)
        (keys / name).chmod(0o600)
    return keys


def _kept_token(whose: str) -> str:
    lines = (KEPT / "README.md").read_text().splitlines()
    return next(line.split()[-1] for line in lines if line.strip().startswith(whose))


def _admin(vault: Vault) -> TokenMade:
    made = vault.answer(NewAdminToken(1, "laptop"))
    assert isinstance(made, TokenMade)
    return made


def test_each_kind_of_token_is_good_for_its_own_question_alone(vault: Vault) -> None:
    vault.answer(AddUser(1, "alice"))
    user = vault.answer(NewToken(1, "alice", ""))
    assert isinstance(user, TokenMade)
    admin = _admin(vault)
    assert isinstance(vault.answer(VerifyToken(1, user.token)), HandleMinted)
    assert vault.answer(VerifyAdminToken(1, admin.token)) == AdminVerified(1, admin.token_id)
    assert vault.answer(VerifyToken(1, admin.token)) == TokenRejected(1)
    assert vault.answer(VerifyAdminToken(1, user.token)) == TokenRejected(1)
    assert vault.answer(VerifyAdminToken(1, make_token("admin").token)) == TokenRejected(1)
    assert (is_token(admin.token, "admin"), is_token(admin.token)) == (True, False)
    assert public_id(admin.token) == admin.token_id
    assert public_id(admin.token + "x") is None


def test_one_that_is_revoked_opens_nothing_and_is_not_listed(vault: Vault) -> None:
    good, gone = _admin(vault), _admin(vault)
    assert vault.answer(RevokeToken(1, gone.token_id)) == Ok(1)
    assert isinstance(vault.answer(RevokeToken(1, gone.token_id)), Refused)
    assert vault.answer(VerifyAdminToken(1, gone.token)) == TokenRejected(1)
    assert vault.answer(VerifyAdminToken(1, good.token)) == AdminVerified(1, good.token_id)
    listed = vault.answer(ListAdminTokens(1))
    assert isinstance(listed, Tokens)
    assert [(t.token_id, t.user, t.label) for t in listed.tokens] == [(good.token_id, "", "laptop")]
    assert listed.tokens[0].last_used_s is not None
    of_users = vault.answer(ListTokens(1, ""))
    assert isinstance(of_users, Tokens)
    assert of_users.tokens == ()


def test_there_is_a_bound_on_them(vault: Vault) -> None:
    answers = [vault.answer(NewAdminToken(1, "")) for _ in range(65)]
    assert isinstance(answers[-1], Refused)
    assert all(isinstance(answer, TokenMade) for answer in answers[:-1])


def test_the_first_is_made_once_in_a_vaults_life_and_written_once(
    vault: Vault, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    keys = tmp_path / "_keys"
    show_first_token(vault, keys, "auto")
    token = (keys / FILE).read_text().strip()
    assert (keys / FILE).stat().st_mode & 0o777 == 0o600
    found = vault.answer(VerifyAdminToken(1, token))
    assert isinstance(found, AdminVerified)
    said = "".join(capfd.readouterr())
    assert token not in said
    (keys / FILE).unlink()
    vault.answer(RevokeToken(1, found.token_id))
    show_first_token(vault, keys, "auto")
    assert not (keys / FILE).exists(), "not even after the first was revoked"


def test_on_a_terminal_the_first_is_printed_and_in_json_it_is_not(
    vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    show_first_token(vault, tmp_path / "_keys", "console")
    printed = capsys.readouterr().err.split()[-1]
    assert isinstance(vault.answer(VerifyAdminToken(1, printed)), AdminVerified)
    assert not (tmp_path / "_keys" / FILE).exists()
    with_program = Vault(tmp_path / "other")
    show_first_token(with_program, tmp_path / "other", "json")
    with_program.close()
    assert (tmp_path / "other" / FILE).read_text().strip() not in capsys.readouterr().err


def test_an_old_vault_is_migrated_with_all_it_knows_and_a_copy_of_before(old: Path) -> None:
    before = (old / "vault.db").read_bytes()
    vault = Vault(old)
    try:
        alice = vault.answer(VerifyToken(1, _kept_token("alice's token")))
        assert isinstance(alice, HandleMinted)
        assert alice.user == "alice"
        for whose in ("the revoked one", "bob's"):
            assert vault.answer(VerifyToken(1, _kept_token(whose))) == TokenRejected(1)
        admin = _admin(vault)
        assert vault.answer(VerifyAdminToken(1, admin.token)) == AdminVerified(1, admin.token_id)
        copy = old / "vault.db.v1"
        assert copy.stat().st_mode & 0o777 == 0o600
        with sqlite3.connect(f"file:{copy}?immutable=1", uri=True) as db:
            assert db.execute("SELECT version FROM schema_version").fetchall() == [(1,)]
            (salt,) = db.execute("SELECT salt FROM users WHERE user = 'alice'").fetchone()
        db.close()
        assert salt in before
        # what is forgotten is forgotten there too
        assert vault.answer(RemoveUser(1, "alice")) == Ok(1)
        assert not copy.exists()
        assert salt not in b"".join(path.read_bytes() for path in old.glob("vault.db*"))
    finally:
        vault.close()
    Vault(old).close()
    assert not list(old.glob("*.v2")), "what is up to date is not copied"


def test_a_migration_that_fails_leaves_the_old_vault_as_it_was(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = (*core.vault.schema.MIGRATIONS[:1], ("CREATE TABLE half (x)", "INSERT INTO missing VALUES (1)"))
    with monkeypatch.context() as patch:
        patch.setattr("core.vault.schema.MIGRATIONS", broken)
        with pytest.raises(VaultError, match="missing"):
            Vault(old)
    with sqlite3.connect(old / "vault.db") as db:
        assert db.execute("SELECT version FROM schema_version").fetchall() == [(1,)]
        assert not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'half'").fetchall()
    db.close()
    vault = Vault(old)
    assert isinstance(vault.answer(VerifyToken(1, _kept_token("alice's token"))), HandleMinted)
    vault.close()


def test_without_a_copy_nothing_is_migrated(old: Path) -> None:
    (old / "vault.db.v1").mkdir()
    with pytest.raises(VaultError, match="is not migrated"):
        Vault(old)
    with sqlite3.connect(old / "vault.db") as db:
        assert db.execute("SELECT version FROM schema_version").fetchall() == [(1,)]
    db.close()
