"""An administrator's act that cannot be recorded is not done."""

import asyncio
from typing import Any

import pytest

from core.acting import REQUEST, WHO
from core.audited import AuditedAdministration, CoreAuditor
from core.audited_credentials import AuditedConnector, AuditedKeeper
from core.egress_link import VaultRefused
from core.hub.admin import AdministrationError
from core.hub.connecting import ConnectBody
from core.hub.credentials import NewValue
from core.vault.terms import CredentialTerms
from tests.fakes.hub_process import FakeAdministration, FakeConnector, FakeKeeper


class Link:
    """Keeps what it is asked and told; refuses where ``refusal`` says why."""

    def __init__(self, refusal: str = "") -> None:
        self.refusal = refusal
        self.said: list[Any] = []

    async def ask(self, make: Any) -> None:
        self.said.append(make(1).record)
        if self.refusal:
            raise VaultRefused(self.refusal)

    def tell(self, make: Any) -> None:
        self.said.append(make(1).record)


def audited(link: Link, inner: FakeAdministration) -> AuditedAdministration:
    return AuditedAdministration(inner, CoreAuditor(link))  # type: ignore[arg-type]


def test_an_act_is_recorded_before_and_after_with_who_and_which_request() -> None:
    link, inner = Link(), FakeAdministration()

    async def act() -> None:
        WHO.set("uid:0")
        REQUEST.set("req_7")
        await audited(link, inner).add_user("alice")
        with pytest.raises(AdministrationError, match="there is a user"):
            await audited(link, inner).add_user("alice")
        await audited(link, inner).new_token("alice", "phone")

    asyncio.run(act())
    assert [(r.kind, r.outcome) for r in link.said] == [
        ("user_added", "asked"), ("user_added", "done"), ("user_added", "asked"), ("user_added", "failed"),
        ("token_made", "asked"), ("token_made", "done"),
    ]  # fmt: skip
    assert {(r.who, r.user, r.request) for r in link.said} == {("uid:0", "alice", "req_7")}
    assert link.said[-1].on == next(iter(inner.tokens))


def test_where_it_cannot_be_recorded_nothing_is_done() -> None:
    link, inner = Link("the disk is full"), FakeAdministration()
    with pytest.raises(AdministrationError, match="disk is full") as raised:
        asyncio.run(audited(link, inner).add_user("alice"))
    assert raised.value.code == "unavailable"
    assert inner.users == {}
    assert [r.outcome for r in link.said] == ["asked"]


def test_looking_is_not_recorded() -> None:
    link = Link("the disk is full")
    assert asyncio.run(audited(link, FakeAdministration()).list_users()) == []
    assert link.said == []


def test_credentials_and_keys_are_changed_on_the_record_with_who_asked() -> None:
    link, inner = Link(), FakeKeeper()
    keeper = AuditedKeeper(inner, CoreAuditor(link))  # type: ignore[arg-type]

    async def act() -> None:
        WHO.set("user:alice")
        await keeper.set("alice", "api", CredentialTerms(host="a.example"), NewValue("canary-1234", b""))
        await keeper.list("alice")
        await keeper.delete("alice", "api")
        with pytest.raises(AdministrationError):
            await keeper.delete("alice", "api")
        await keeper.rotate()
        connector = AuditedConnector(FakeConnector(), CoreAuditor(link))  # type: ignore[arg-type]
        await connector.begin("alice", "mail", ConnectBody("acme"))

    asyncio.run(act())
    assert [(r.kind, r.outcome, r.on, r.detail) for r in link.said] == [
        ("credential_changed", "asked", "api", "set"), ("credential_changed", "done", "api", "set"),
        ("credential_changed", "asked", "api", "delete"), ("credential_changed", "done", "api", "delete"),
        ("credential_changed", "asked", "api", "delete"), ("credential_changed", "failed", "api", "delete"),
        ("key_rotated", "asked", "", ""), ("key_rotated", "done", "", ""),
        ("credential_changed", "asked", "mail", "begin to connect with acme"),
        ("credential_changed", "done", "mail", "begin to connect with acme"),
    ]  # fmt: skip
    assert {r.who for r in link.said} == {"user:alice"}
    assert "canary" not in str(link.said)


def test_a_credential_that_cannot_be_recorded_is_not_kept() -> None:
    link, inner = Link("the disk is full"), FakeKeeper()
    keeper = AuditedKeeper(inner, CoreAuditor(link))  # type: ignore[arg-type]
    with pytest.raises(AdministrationError, match="disk is full"):
        asyncio.run(keeper.set("alice", "api", CredentialTerms(host="a.example"), NewValue("x" * 9, b"")))
    assert inner.kept == {}


def test_what_a_command_does_by_itself_is_recorded_before_and_after() -> None:
    link = Link()

    async def act() -> None:
        WHO.set("uid:0")
        auditor = CoreAuditor(link)  # type: ignore[arg-type]
        await auditor.report("backup_made", "asked", "/b", "")
        await auditor.report("backup_made", "done", "/b", "")
        link.refusal = "the disk is full"
        with pytest.raises(AdministrationError, match="disk is full"):
            await auditor.report("provider_set", "asked", "acme", "")

    asyncio.run(act())
    assert [(r.kind, r.outcome, r.who, r.on) for r in link.said] == [
        ("backup_made", "asked", "uid:0", "/b"), ("backup_made", "done", "uid:0", "/b"),
        ("provider_set", "asked", "uid:0", "acme"),
    ]  # fmt: skip
