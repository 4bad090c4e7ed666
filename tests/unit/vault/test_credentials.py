"""Credentials in the vault: kept, listed without values, opened for their owner alone, gone for good."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from core.egress.credential_messages import (
    BoxKey,
    CredentialKept,
    Credentials,
    DeleteCredential,
    GetBoxKey,
    ListCredentials,
    SetCredential,
)
from core.egress.messages import AddUser, Ok, Refused, RemoveUser
from core.vault.box import Box, seal_to
from core.vault.errors import VaultRefusal
from core.vault.terms import CredentialTerms
from core.vault.vault import Vault

VALUE = "canary-5f0e1d2c3b4a"
TERMS = CredentialTerms(host="api.example.com")


def _set(vault: Vault, name: str = "api", owner: str = "alice", **more: Any) -> Any:
    return vault.answer(SetCredential(1, owner, name, more.pop("terms", TERMS), **({"value": VALUE} | more)))


def _names(vault: Vault, owner: str) -> list[str]:
    listed = vault.answer(ListCredentials(1, owner))
    assert isinstance(listed, Credentials)
    return [one.name for one in listed.credentials]


def _stored(tmp_path: Path) -> bytes:
    return b"".join(path.read_bytes() for path in (tmp_path / "_keys").glob("vault.db*"))


def test_a_credential_is_kept_listed_opened_and_deleted(vault: Vault) -> None:
    assert _set(vault) == CredentialKept(1, 1)
    found = vault.open("alice", "api")
    assert found is not None
    assert (found.secret.reveal(), found.terms) == (VALUE, TERMS)
    listed = vault.answer(ListCredentials(2, "alice"))
    assert isinstance(listed, Credentials)
    (one,) = listed.credentials
    assert (one.name, one.terms, one.version, one.created_s) == ("api", TERMS, 1, 1_000)
    assert VALUE not in repr(listed)
    assert vault.answer(DeleteCredential(3, "alice", "api")) == Ok(3)
    assert vault.open("alice", "api") is None
    assert isinstance(vault.answer(DeleteCredential(3, "alice", "api")), Refused)


def test_owners_do_not_see_each_other(vault: Vault) -> None:
    _set(vault, owner="bob")
    _set(vault, owner="", name="provider:main", terms=CredentialTerms())
    assert vault.open("alice", "api") is None
    assert _names(vault, "alice") == []
    assert isinstance(vault.answer(DeleteCredential(3, "alice", "api")), Refused)
    assert _names(vault, "bob") == ["api"]
    assert _names(vault, "") == ["provider:main"]


def test_a_value_is_nowhere_in_the_clear_and_gone_with_its_user(vault: Vault, tmp_path: Path) -> None:
    _set(vault)
    assert VALUE.encode() not in _stored(tmp_path)
    assert b"api.example.com" not in _stored(tmp_path)
    with sqlite3.connect(tmp_path / "_keys" / "vault.db") as db:
        (sealed,) = db.execute("SELECT sealed FROM credentials").fetchone()
    db.close()
    assert sealed in _stored(tmp_path)
    vault.answer(RemoveUser(2, "alice"))
    assert sealed not in _stored(tmp_path)
    vault.answer(AddUser(3, "alice"))
    assert _names(vault, "alice") == []


@pytest.mark.parametrize("moved", ["owner = 'bob'", "name = 'other'", "version = 7"])
def test_a_record_that_was_moved_does_not_open(vault: Vault, tmp_path: Path, moved: str) -> None:
    _set(vault)
    with sqlite3.connect(tmp_path / "_keys" / "vault.db") as db:
        db.execute(f"UPDATE credentials SET {moved}")
    db.close()
    owner, name = ("bob" if "bob" in moved else "alice"), ("other" if "other" in moved else "api")
    with pytest.raises(VaultRefusal, match="does not open"):
        vault.open(owner, name)
    assert isinstance(vault.answer(ListCredentials(1, owner)), Refused)


def test_each_value_has_a_version_of_its_own_even_after_a_deletion(vault: Vault) -> None:
    assert [_set(vault).version for _ in range(2)] == [1, 2]
    vault.answer(DeleteCredential(1, "alice", "api"))
    assert _set(vault).version == 3


@pytest.mark.parametrize("name", ["", "A", "a/b", "a" * 65, "..", "a b", "provider:", "a:b", "a\n", "ä"])
def test_a_name_that_is_none_is_refused(vault: Vault, name: str) -> None:
    assert isinstance(_set(vault, name), Refused)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "qx7!z",
        "x" * 4_097,
        "two\nlines-of-it",
        "a\r\nX-Evil: 1234",
        " spaced-out",
        "ünïcödé-key",
        "nul\0nul\0",
    ],
)
def test_a_value_that_could_not_go_into_a_header_is_refused_unsaid(vault: Vault, value: str) -> None:
    answer = _set(vault, value=value)
    assert isinstance(answer, Refused)
    assert not value or value not in answer.message


@pytest.mark.parametrize(
    "terms",
    [
        {"host": ""},
        {"host": "API.example.com"},
        {"host": "user@example.com"},
        {"host": "example.com:443"},
        {"host": "*.example.com"},
        {"path": "v1"},
        {"path": "/a/../b"},
        {"path": "/%2e%2e"},
        {"path": "//x"},
        {"place": "query", "parameter": "a&b"},
        {"parameter": "X\r\nY"},
        {"parameter": "Host"},
        {"place": "basic"},
        {"kind": "basic", "place": "basic"},
        {"kind": "basic", "place": "basic", "username": "a:b"},
        {"username": "u"},
    ],
)
def test_terms_that_make_no_sense_are_refused(vault: Vault, terms: dict[str, Any]) -> None:
    assert isinstance(_set(vault, terms=CredentialTerms(**{"host": "api.example.com", **terms})), Refused)


@pytest.mark.parametrize(
    "terms",
    [
        {},
        {"host": "[2001:db8::1]", "port": 8443, "scheme": "http", "path": "/v1/"},
        {"parameter": "X-Api-Key"},
        {"place": "query", "parameter": "api_key"},
        {"kind": "basic", "place": "basic", "username": "robot"},
    ],
)
def test_terms_that_make_sense_are_kept(vault: Vault, terms: dict[str, Any]) -> None:
    wanted = CredentialTerms(**{"host": "api.example.com", **terms})
    assert isinstance(_set(vault, terms=wanted), CredentialKept)
    found = vault.open("alice", "api")
    assert found is not None
    assert found.terms == wanted


def test_an_owner_has_a_bounded_number_and_may_change_one_at_the_bound(vault: Vault) -> None:
    answers = [_set(vault, f"n{number}") for number in range(65)]
    assert all(isinstance(answer, CredentialKept) for answer in answers[:64])
    assert isinstance(answers[64], Refused)
    assert isinstance(_set(vault, "n3"), CredentialKept)


def test_nobody_else_than_a_user_has_credentials(vault: Vault) -> None:
    assert isinstance(_set(vault, owner="nobody"), Refused)


def test_a_sealed_value_opens_for_its_name_and_this_process_alone(vault: Vault) -> None:
    box = vault.answer(GetBoxKey(1))
    assert isinstance(box, BoxKey)
    sealed = seal_to(box.key, "api", VALUE)
    assert VALUE.encode() not in sealed
    assert isinstance(_set(vault, value="", sealed=sealed), CredentialKept)
    found = vault.open("alice", "api")
    assert found is not None
    assert found.secret.reveal() == VALUE
    for name, wrong in (
        ("other", sealed),
        ("api", sealed[:-1]),
        ("api", b""[:0] + b"x"),
        ("api", seal_to(Box().public, "api", VALUE)),
    ):
        assert isinstance(_set(vault, name, value="", sealed=wrong), Refused)


def test_messages_and_what_they_carry_show_no_value(vault: Vault) -> None:
    message = SetCredential(1, "alice", "api", TERMS, VALUE)
    _set(vault)
    assert VALUE not in f"{message!r} {vault.open('alice', 'api')!r}"


def test_the_last_use_is_listed_after_a_while(tmp_path: Path) -> None:
    clock = [0.0]
    vault = Vault(tmp_path / "k", wall_s=lambda: 5_000.0, clock_s=lambda: clock[0])
    try:
        vault.answer(AddUser(1, "alice"))
        _set(vault)
        clock[0] = 61.0
        vault.open("alice", "api")
        listed = vault.answer(ListCredentials(1, "alice"))
        assert isinstance(listed, Credentials)
        assert listed.credentials[0].used_s == 5_000
    finally:
        vault.close()
