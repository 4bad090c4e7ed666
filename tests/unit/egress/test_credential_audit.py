"""The audit log hears of every change of a credential or key, and of no value."""

from core.audit.records import Record
from core.config import EgressRule
from core.egress.credential_audit import record_of
from core.egress.credential_messages import (
    CredentialKept,
    Credentials,
    DeleteCredential,
    KeyRotated,
    ListCredentials,
    RotateKey,
    SetCredential,
)
from core.egress.messages import Ok, Refused
from core.egress.rule_messages import AddEgressRule, EgressRuleAdded, RemoveEgressRule
from core.vault.terms import CredentialTerms


def test_changes_and_their_refusals_are_recorded_and_questions_are_not() -> None:
    asked = SetCredential(1, "alice", "api", CredentialTerms(), "canary-5f0e1d2c")
    kept = record_of(asked, CredentialKept(1, 1))
    assert kept == Record("credential_set", "done", user="alice", on="api")
    assert record_of(asked, Refused(1, "no")) == Record(
        "credential_refused", "refused", user="alice", on="api"
    )
    assert "canary" not in repr(kept)
    gone = DeleteCredential(1, "alice", "api")
    assert record_of(gone, Ok(1)) == Record("credential_deleted", "done", user="alice", on="api")
    assert record_of(gone, Refused(1, "no such credential")) is None
    assert record_of(RotateKey(1), KeyRotated(1, 2, 3)) == Record("key_rotated", "done")
    assert record_of(RotateKey(1), Refused(1, "no")) == Record("key_rotated", "refused")
    assert record_of(ListCredentials(1, "alice"), Credentials(1, ())) is None


def test_a_new_rule_is_recorded_with_what_it_allows_and_one_that_was_there_is_not() -> None:
    rule = EgressRule("api.example.com", port=8443, methods=("GET", "PUT"), path="/v1")
    asked = AddEgressRule(1, "alice", rule)
    assert record_of(asked, EgressRuleAdded(1, "rule_1", True)) == Record(
        "egress_rule_added",
        "done",
        user="alice",
        on="rule_1",
        detail="agent GET,PUT https://api.example.com:8443/v1",
    )
    assert record_of(asked, EgressRuleAdded(1, "rule_1", False)) is None
    assert record_of(asked, Refused(1, "no")) is None
    gone = RemoveEgressRule(1, "alice", "rule_1")
    assert record_of(gone, Ok(1)) == Record("egress_rule_removed", "done", user="alice", on="rule_1")
    assert record_of(gone, Refused(1, "no such rule")) is None
