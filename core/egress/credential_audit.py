"""What the audit log says of questions to the vault about credentials and keys; never a value."""

from typing import Any

from core.audit.records import Record
from core.egress.credential_messages import DeleteCredential, RotateKey, SetCredential
from core.egress.messages import Refused


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
    return None
