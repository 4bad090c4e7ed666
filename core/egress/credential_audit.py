"""What the audit log says of questions to the vault about credentials, keys and rules; never a value."""

from typing import Any

from core.audit.records import Record
from core.egress.credential_messages import DeleteCredential, RotateKey, SetCredential
from core.egress.messages import Refused
from core.egress.rule_messages import AddEgressRule, EgressRuleAdded, RemoveEgressRule


def record_of(question: Any, answer: Any) -> Record | None:
    """The record of an answered question; None where it changes nothing."""
    refused = isinstance(answer, Refused)
    match question:
        case SetCredential():
            if refused:
                return Record("credential_refused", "refused", user=question.owner, on=question.name)
            return Record("credential_set", "done", user=question.owner, on=question.name)
        case DeleteCredential() if not refused:
            return Record("credential_deleted", "done", user=question.owner, on=question.name)
        case RotateKey():
            return Record("key_rotated", "refused" if refused else "done")
        case AddEgressRule(_, user, rule) if isinstance(answer, EgressRuleAdded) and answer.new:
            port = f":{rule.port}" if rule.port else ""
            detail = f"{rule.origin} {','.join(rule.methods)} {rule.scheme}://{rule.host}{port}{rule.path}"
            return Record("egress_rule_added", "done", user=user, on=answer.rule_id, detail=detail)
        case RemoveEgressRule(_, user, rule_id) if not refused:
            return Record("egress_rule_removed", "done", user=user, on=rule_id)
    return None
