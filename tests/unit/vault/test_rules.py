"""Users' own egress rules in the vault: kept, bounded, gone with their user."""

from pathlib import Path

import pytest

from core.config import EgressRule
from core.egress.messages import AddUser, Ok, Refused, RemoveUser
from core.egress.rule_messages import (
    AddEgressRule,
    EgressRuleAdded,
    EgressRules,
    ListEgressRules,
    RemoveEgressRule,
)
from core.vault.vault import Vault

RULE = EgressRule("api.example.com", methods=("GET", "POST"), path="/v1")


def _of(vault: Vault, user: str) -> list[EgressRule]:
    listed = vault.answer(ListEgressRules(1, user))
    assert isinstance(listed, EgressRules)
    return [kept.rule for kept in listed.rules]


def _add(vault: Vault, rule: EgressRule = RULE, user: str = "alice") -> EgressRuleAdded:
    added = vault.answer(AddEgressRule(1, user, rule))
    assert isinstance(added, EgressRuleAdded)
    return added


def test_a_rule_is_kept_once_listed_for_its_user_alone_and_removed(vault: Vault) -> None:
    added = _add(vault)
    assert added.new
    assert _add(vault) == EgressRuleAdded(1, added.rule_id, False)
    assert _of(vault, "alice") == [RULE]
    assert _of(vault, "bob") == []
    assert isinstance(vault.answer(RemoveEgressRule(2, "bob", added.rule_id)), Refused)
    assert vault.answer(RemoveEgressRule(2, "alice", added.rule_id)) == Ok(2)
    assert _of(vault, "alice") == []
    assert isinstance(vault.answer(RemoveEgressRule(3, "alice", added.rule_id)), Refused)


def test_rules_outlive_the_process_and_end_with_their_user(vault: Vault, tmp_path: Path) -> None:
    _add(vault)
    _add(vault, EgressRule("other.example"))
    vault.close()
    again = Vault(tmp_path / "_keys")
    try:
        assert _of(again, "alice") == [RULE, EgressRule("other.example")]
        again.answer(RemoveUser(1, "alice"))
        again.answer(AddUser(2, "alice"))
        assert _of(again, "alice") == []
    finally:
        again.close()


def test_nobody_has_a_rule_who_is_none_and_nobody_has_too_many(vault: Vault) -> None:
    assert isinstance(vault.answer(AddEgressRule(1, "carol", RULE)), Refused)
    for number in range(100):
        _add(vault, EgressRule(f"host-{number}.example"))
    refused = vault.answer(AddEgressRule(1, "alice", RULE))
    assert isinstance(refused, Refused)
    assert "at most 100" in refused.message
    assert not _add(vault, EgressRule("host-7.example")).new
    assert _add(vault, user="bob").new


@pytest.mark.parametrize(
    "rule", [EgressRule("a.example", methods=()), EgressRule("a.example", path="/a/../b")]
)
def test_a_rule_that_could_fit_nothing_is_refused(vault: Vault, rule: EgressRule) -> None:
    assert isinstance(vault.answer(AddEgressRule(1, "alice", rule)), Refused)
