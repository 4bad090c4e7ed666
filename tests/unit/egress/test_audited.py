"""An administrator's act that cannot be recorded is not done."""

import asyncio
from typing import Any

import pytest

from core.acting import REQUEST, WHO
from core.audited import AuditedAdministration, CoreAuditor
from core.egress_link import VaultRefused
from core.hub.admin import AdministrationError
from tests.fakes.hub_process import FakeAdministration


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
