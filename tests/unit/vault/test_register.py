"""Whoever can write vault.db, but has no master key, adds nothing to it and puts nothing back."""

import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from core.config import EgressRule
from core.egress.credential_messages import (
    CredentialKept,
    DeleteCredential,
    KeyRotated,
    ListCredentials,
    RotateKey,
    SetCredential,
)
from core.egress.messages import (
    AddUser,
    AdminVerified,
    HandleMinted,
    NewAdminToken,
    NewToken,
    Ok,
    Refused,
    RemoveUser,
    RevokeToken,
    SetUserDisabled,
    TokenMade,
    TokenRejected,
    VerifyAdminToken,
    VerifyToken,
)
from core.egress.rule_messages import (
    AddEgressRule,
    EgressRuleAdded,
    EgressRules,
    ListEgressRules,
    RemoveEgressRule,
)
from core.vault.errors import VaultError, VaultRefusal
from core.vault.register import BOUND_FILE
from core.vault.terms import CredentialTerms
from core.vault.tokens import make_token
from core.vault.vault import Vault

TERMS = CredentialTerms(host="api.example.com")
CHANGED = "was changed by something other than Certosa"


class Case:
    """A vault with alice and bob, each with a token; ``edit`` writes into its file behind its back."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.vault = Vault(directory)
        self.tokens = {}
        for user in ("alice", "bob"):
            self.vault.answer(AddUser(1, user))
            self.tokens[user] = self.token(user)
        self.admin = self.made(NewAdminToken(1, "laptop"))

    def made(self, question: NewToken | NewAdminToken) -> TokenMade:
        made = self.vault.answer(question)
        assert isinstance(made, TokenMade)
        return made

    def token(self, user: str) -> TokenMade:
        return self.made(NewToken(1, user, ""))

    def set(self, value: str) -> None:
        kept = self.vault.answer(SetCredential(1, "alice", "api", TERMS, f"the value {value}"))
        assert isinstance(kept, CredentialKept), kept

    def value(self) -> str | None:
        found = self.vault.open("alice", "api")
        return None if found is None else found.secret.reveal().removeprefix("the value ")

    def rule(self, host: str) -> str:
        added = self.vault.answer(AddEgressRule(1, "alice", EgressRule(host)))
        assert isinstance(added, EgressRuleAdded), added
        return added.rule_id

    def rules(self, user: str = "alice") -> list[str]:
        listed = self.vault.answer(ListEgressRules(1, user))
        assert isinstance(listed, EgressRules), listed
        return [kept.rule.host for kept in listed.rules]

    def good(self, token: TokenMade, admin: bool = False) -> bool:
        answer = self.vault.answer(VerifyAdminToken(1, token.token) if admin else VerifyToken(1, token.token))
        assert isinstance(answer, AdminVerified | HandleMinted | TokenRejected)
        return not isinstance(answer, TokenRejected)

    def edit(self, *statements: tuple[str, tuple[Any, ...]]) -> None:
        with closing(sqlite3.connect(self.directory / "vault.db")) as db, db:
            for statement, values in statements:
                db.execute(statement, values)

    def row(self, table: str, where: str) -> tuple[Any, ...]:
        with closing(sqlite3.connect(self.directory / "vault.db")) as db:
            found: tuple[Any, ...] = db.execute(f"SELECT * FROM {table} WHERE {where}").fetchone()
            return found

    def put(self, table: str, row: tuple[Any, ...]) -> None:
        self.edit((f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * len(row))})", row))

    def reopen(self) -> None:
        self.vault.close()
        self.vault = Vault(self.directory)


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    made = Case(tmp_path / "_keys")
    yield made
    made.vault.close()


def test_what_was_made_here_is_good_before_and_after_a_start(case: Case) -> None:
    case.set("one")
    case.set("two")
    gone = case.token("alice")
    case.vault.answer(RevokeToken(1, gone.token_id))
    case.vault.answer(SetUserDisabled(1, "bob", True))
    for _ in range(2):
        assert case.good(case.tokens["alice"])
        assert case.good(case.admin, admin=True)
        assert not case.good(gone)
        assert not case.good(case.tokens["bob"])
        assert case.value() == "two"
        case.reopen()
    case.vault.answer(SetUserDisabled(1, "bob", False))
    assert case.good(case.tokens["bob"])
    case.vault.answer(RemoveUser(1, "bob"))
    case.reopen()
    assert not case.good(case.tokens["bob"])


@pytest.mark.parametrize("admin", [False, True])
@pytest.mark.parametrize("mac", ["none", "another's"])
def test_a_token_that_was_written_into_the_file_is_none(case: Case, admin: bool, mac: str) -> None:
    fresh = make_token("admin" if admin else "user")
    table = "admin_tokens" if admin else "tokens"
    whose = case.admin if admin else case.tokens["alice"]
    value = None if mac == "none" else case.row(table, f"token_id = '{whose.token_id}'")[-1]
    if admin:
        case.put("admin_tokens", (fresh.token_id, fresh.hash, "", 1, None, None, value))
    else:
        case.put("tokens", (fresh.token_id, "alice", fresh.hash, "", 1, None, None, value))
    made = TokenMade(1, fresh.token_id, fresh.token)
    assert not case.good(made, admin)
    assert case.good(whose, admin)
    with pytest.raises(VaultError, match=CHANGED):
        case.reopen()


@pytest.mark.parametrize("column", ["user", "hash", "token_id"])
def test_a_row_of_a_token_is_of_its_user_hash_and_id(case: Case, column: str) -> None:
    fresh = make_token()
    alices, bobs = case.tokens["alice"], case.tokens["bob"]
    # bob, who can write the file, wants to be alice by his own token, or by one that he made
    change = {
        "user": ("UPDATE tokens SET user = 'alice' WHERE token_id = ?", (bobs.token_id,)),
        "hash": ("UPDATE tokens SET hash = ? WHERE token_id = ?", (fresh.hash, alices.token_id)),
        "token_id": ("UPDATE tokens SET token_id = ? WHERE token_id = ?", (fresh.token_id, bobs.token_id)),
    }
    case.edit(change[column])
    tried = TokenMade(1, fresh.token_id, fresh.token) if column == "hash" else bobs
    assert not case.good(tried)


def test_a_revoked_token_does_not_come_back(case: Case) -> None:
    token = case.token("alice")
    row = case.row("tokens", f"token_id = '{token.token_id}'")
    case.vault.answer(RevokeToken(1, token.token_id))
    case.edit(("UPDATE tokens SET revoked_s = NULL WHERE token_id = ?", (token.token_id,)))
    assert not case.good(token)
    case.put("tokens", row)  # as it was, with the MAC that it had
    assert not case.good(token)
    assert case.good(case.tokens["alice"])
    with pytest.raises(VaultError, match=CHANGED):
        case.reopen()


def test_a_disabled_user_is_not_let_in_by_the_file(case: Case) -> None:
    case.vault.answer(SetUserDisabled(1, "bob", True))
    case.edit(("UPDATE users SET disabled = 0 WHERE user = 'bob'", ()))
    assert not case.good(case.tokens["bob"])
    with pytest.raises(VaultError, match=CHANGED):
        case.reopen()


def test_a_credential_put_back_to_an_older_version_is_noticed(case: Case) -> None:
    case.set("old")
    old = case.row("credentials", "name = 'api'")
    versions = case.row("credential_versions", "name = 'api'")
    case.set("new")
    case.put("credentials", old)
    case.put("credential_versions", versions)
    with pytest.raises(VaultRefusal, match="set it again"):
        case.value()
    assert isinstance(case.vault.answer(ListCredentials(1, "alice")), Refused)
    assert isinstance(case.vault.answer(RotateKey(1)), Refused)
    case.set("newer")
    assert case.value() == "newer"
    case.reopen()
    assert case.value() == "newer"
    case.put("credentials", old)
    with pytest.raises(VaultError, match=CHANGED):
        case.reopen()


def test_a_deleted_credential_does_not_come_back(case: Case) -> None:
    case.set("gone")
    row = case.row("credentials", "name = 'api'")
    assert case.vault.answer(DeleteCredential(1, "alice", "api")) == Ok(1)
    assert case.value() is None
    case.put("credentials", row)
    with pytest.raises(VaultRefusal):
        case.value()


def test_a_rule_that_was_written_into_the_file_is_none(case: Case) -> None:
    case.rule("own.example")
    case.put("egress_rules", ("alice", "rule_00000000", '{"host":"evil.example"}', 1))
    assert case.rules() == ["own.example"]
    with pytest.raises(VaultError, match=CHANGED):
        case.reopen()
    case.edit(("DELETE FROM egress_rules WHERE rule_id = 'rule_00000000'", ()))
    case.vault = Vault(case.directory)
    assert case.rules() == ["own.example"]


def test_a_rule_that_was_changed_or_is_of_another_user_is_none(case: Case) -> None:
    rule_id = case.rule("own.example")
    row = case.row("egress_rules", f"rule_id = '{rule_id}'")
    case.edit(("UPDATE egress_rules SET rule = replace(rule, 'own', 'evil')", ()))
    assert case.rules() == []
    case.edit(("UPDATE egress_rules SET rule = replace(rule, 'evil', 'own'), user = 'bob'", ()))
    assert case.rules() == case.rules("bob") == []
    case.put("egress_rules", row)
    assert case.rules() == ["own.example"]


def test_a_removed_rule_does_not_come_back(case: Case) -> None:
    rule_id = case.rule("own.example")
    row = case.row("egress_rules", f"rule_id = '{rule_id}'")
    assert case.vault.answer(RemoveEgressRule(1, "alice", rule_id)) == Ok(1)
    case.put("egress_rules", row)
    assert case.rules() == []
    assert case.vault.answer(RemoveEgressRule(1, "alice", rule_id)) == Ok(1)
    case.reopen()


def test_rules_from_before_they_were_bound_are_bound_at_the_next_start(case: Case) -> None:
    case.rule("own.example")
    before_rules(case)
    (case.directory / BOUND_FILE).write_bytes(b"")
    for _ in range(2):
        case.reopen()
        assert case.rules() == ["own.example"]
    case.put("egress_rules", ("alice", "rule_11111111", '{"host":"evil.example"}', 1))
    with pytest.raises(VaultError, match=CHANGED):
        case.reopen()


def before_rules(case: Case) -> None:
    """Have the register as it was before rules were bound, in a database of that schema."""
    kept = case.vault._keys.register._without_rules().masked()
    case.vault.close()
    case.edit(
        ("UPDATE meta SET value = ? WHERE key = 'register'", (kept,)),
        ("UPDATE schema_version SET version = 5", ()),
    )


@pytest.mark.parametrize("bound", [b"", None])
def test_a_backup_from_before_rules_were_bound_is_opened_once_the_mark_is_deleted(
    case: Case, bound: bytes | None
) -> None:
    case.rule("own.example")
    before_rules(case)
    with pytest.raises(VaultError, match=CHANGED):
        Vault(case.directory)
    mark = case.directory / BOUND_FILE
    mark.unlink()
    if bound is not None:
        mark.write_bytes(bound)  # as the archive of that day has it
        mark.chmod(0o600)
    case.reopen()
    assert case.rules() == ["own.example"]
    assert (case.directory / "vault.db.v5").exists()


@pytest.mark.parametrize("bound", [b"", None])
def test_a_rule_is_not_slipped_into_a_vault_that_has_none_by_the_loss_of_the_mark(
    case: Case, bound: bytes | None
) -> None:
    (case.directory / BOUND_FILE).unlink()
    if bound is not None:
        (case.directory / BOUND_FILE).write_bytes(bound)
        (case.directory / BOUND_FILE).chmod(0o600)
    case.reopen()  # the control: the loss alone harms nothing, and the mark is there again
    assert case.good(case.tokens["alice"])
    (case.directory / BOUND_FILE).unlink()
    case.put("egress_rules", ("alice", "rule_11111111", '{"host":"evil.example"}', 1))
    with pytest.raises(VaultError, match=CHANGED):
        case.reopen()


@pytest.mark.parametrize("left", ["old mark", "no mark", "half a new one"])
def test_an_upgrade_that_was_cut_goes_on_at_the_next_start(case: Case, left: str) -> None:
    case.rule("own.example")
    mark = case.directory / BOUND_FILE
    mark.unlink()  # the register counts rules already: that is written first
    if left == "old mark":
        mark.write_bytes(b"")
        mark.chmod(0o600)
    elif left == "half a new one":
        mark.with_name(mark.name + ".new").write_bytes(b"ru")
    case.reopen()
    assert mark.read_bytes() == b"rules\n"
    assert case.rules() == ["own.example"]
    assert case.vault.answer(RotateKey(1)) == KeyRotated(1, 2, 0)
    case.reopen()
    assert case.rules() == ["own.example"]


def test_what_was_bound_once_is_never_bound_anew(case: Case) -> None:
    fresh = make_token()
    case.put("tokens", (fresh.token_id, "alice", fresh.hash, "", 1, None, None, None))
    case.edit(("DELETE FROM meta WHERE key = 'register'", ()))
    with pytest.raises(VaultError, match=CHANGED):
        case.reopen()


def test_a_vault_from_before_is_bound_at_its_next_start(case: Case) -> None:
    case.set("kept")
    case.vault.close()
    case.edit(
        ("DELETE FROM meta WHERE key = 'register'", ()),
        *[(f"ALTER TABLE {table} DROP COLUMN mac", ()) for table in ("tokens", "admin_tokens")],
        ("UPDATE schema_version SET version = 4", ()),
    )
    (case.directory / BOUND_FILE).unlink()
    case.vault = Vault(case.directory)
    for _ in range(2):
        assert case.good(case.tokens["alice"])
        assert case.good(case.admin, admin=True)
        assert case.value() == "kept"
        case.reopen()
    assert (case.directory / BOUND_FILE).exists()


def test_a_change_of_key_binds_all_anew(case: Case) -> None:
    case.set("kept")
    assert case.vault.answer(RotateKey(1)) == KeyRotated(1, 2, 1)
    for _ in range(2):
        assert case.good(case.tokens["alice"])
        assert case.good(case.admin, admin=True)
        assert case.value() == "kept"
        case.set("kept")
        case.reopen()


def test_a_whole_vault_of_a_backup_is_taken(case: Case, tmp_path: Path) -> None:
    case.vault.close()
    shutil.copytree(case.directory, tmp_path / "backup")
    case.vault = Vault(case.directory)
    late = case.token("alice")
    case.vault.close()
    shutil.rmtree(case.directory)
    shutil.copytree(tmp_path / "backup", case.directory)
    case.vault = Vault(case.directory)
    assert case.good(case.tokens["alice"])
    assert not case.good(late)


def kept_sum(case: Case) -> tuple[bytes, int]:
    """The register as it lies in the file: its nonce, and the sum under its mask."""
    with closing(sqlite3.connect(case.directory / "vault.db")) as db:
        (kept,) = db.execute("SELECT value FROM meta WHERE key = 'register'").fetchone()
    return kept[:16], int.from_bytes(kept[16:], "big")


def test_what_is_kept_after_many_changes_is_what_a_start_finds(case: Case) -> None:
    rng = random.Random(7)
    for number in range(60):
        user = f"u{number % 5}"
        case.vault.answer(AddUser(1, user))
        match rng.randrange(7):
            case 0:
                case.vault.answer(RevokeToken(1, case.token(user).token_id))
            case 1:
                case.vault.answer(SetUserDisabled(1, user, bool(rng.randrange(2))))
            case 2:
                case.vault.answer(SetCredential(1, user, f"c{rng.randrange(3)}", TERMS, "the value of it"))
            case 3:
                case.vault.answer(DeleteCredential(1, user, f"c{rng.randrange(3)}"))
            case 4:
                case.vault.answer(RemoveUser(1, user))
            case 5:
                case.vault.answer(AddEgressRule(1, user, EgressRule(f"h{rng.randrange(3)}.example")))
            case _:
                case.token(user)
        if number % 20 == 0:
            case.reopen()
    case.reopen()
    assert case.good(case.tokens["alice"])


def test_what_an_entry_adds_cannot_be_learnt_from_two_registers_and_added_again(case: Case) -> None:
    old, _ = case.row("tokens", f"token_id = '{case.tokens['bob'].token_id}'"), case.token("alice")
    _, before = kept_sum(case)
    case.vault.answer(RevokeToken(1, case.tokens["bob"].token_id))
    _, after = kept_sum(case)
    case.vault.answer(SetUserDisabled(1, "alice", True))
    nonce, now = kept_sum(case)
    case.reopen()  # as it is, it is right
    case.put("tokens", old)
    forged = nonce + ((now + before - after) % (1 << 256)).to_bytes(32, "big")
    case.edit(("UPDATE meta SET value = ? WHERE key = 'register'", (forged,)))
    case.vault.close()
    with pytest.raises(VaultError, match=CHANGED):
        Vault(case.directory)
