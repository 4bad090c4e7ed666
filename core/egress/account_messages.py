"""What core asks of the ledger and the audit log, over the link to egress."""

from typing import Any

import msgspec

from core.audit.lines import Line
from core.audit.records import CoreKind, Outcome, Record
from core.audit.verify import Verdict
from core.egress.message_base import LinkMessage
from core.ledger.metering import Dimension, Level


class AskUsage(LinkMessage, frozen=True):
    """What was used. Answer: UsageTold. Empty: everybody, today. Days are YYYY-MM-DD, both included."""

    user: str
    since: str
    until: str


class AskStanding(LinkMessage, frozen=True):
    """How a user stands today. Answer: StandingTold."""

    user: str


class LimitChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One limit of a user's own: ``most`` (None: none; of cost in pico units), or the configuration's."""

    level: Level
    dimension: Dimension
    most: int | None = None
    default: bool = False


class SetLimits(LinkMessage, frozen=True):
    """Give a user limits of their own. Answer: Ok or Refused."""

    user: str
    changes: tuple[LimitChange, ...]


class CoreRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What core may have recorded: of its own kinds alone."""

    kind: CoreKind
    outcome: Outcome
    who: str = ""
    user: str = ""
    on: str = ""
    request: str = ""
    detail: str = ""

    def record(self) -> Record:
        """As the log has it."""
        return Record(self.kind, self.outcome, self.who, self.user, self.on, self.request, self.detail)


class NoteAudit(LinkMessage, frozen=True):
    """Something happened. No answer."""

    record: CoreRecord


class ActAudit(LinkMessage, frozen=True):
    """Something is about to be done. Answer: Ok when the record is on disk, else Refused."""

    record: CoreRecord


class AskAudit(LinkMessage, frozen=True):
    """The latest lines that match; empty is any. Answer: AuditTold or Refused."""

    user: str
    kind: str
    since: str
    until: str
    most: int


class VerifyAudit(LinkMessage, frozen=True):
    """Check the whole log. Answer: AuditVerified or Refused."""


AccountQuestion = AskUsage | AskStanding | SetLimits | NoteAudit | ActAudit | AskAudit | VerifyAudit


class UsageLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a user used of a model in a day; ``cost`` is a decimal number, empty where no price is known."""

    user: str
    day: str
    kind: str
    provider: str
    model: str
    requests: int
    input_tokens: int
    output_tokens: int
    bytes: int
    cost: str
    estimated: int
    unpriced: int


class UsageTold(LinkMessage, frozen=True):
    """The latest days first; ``cut`` where there are more than fit."""

    rows: tuple[UsageLine, ...]
    cut: bool
    currency: str
    zone: str


class StandingTold(LinkMessage, frozen=True):
    """A user's day: of each dimension ``used``, ``held`` for what runs, ``soft``, ``hard`` and ``own``.

    ``own`` names the limits that are not the configuration's, as ``hard.tokens``. Money is decimal.
    """

    user: str
    day: str
    resets_at_s: int
    currency: str
    zone: str
    dimensions: dict[str, dict[str, int | str | None]]
    own: tuple[str, ...]


class AuditTold(LinkMessage, frozen=True):
    """In the order they were written."""

    lines: tuple[Line, ...]


class AuditVerified(LinkMessage, frozen=True):
    """What the check found."""

    verdict: Verdict


AccountAnswer = UsageTold | StandingTold | AuditTold | AuditVerified


def builtins_of(answer: Any) -> dict[str, Any]:
    """An answer as JSON has it, without the link's own fields."""
    values: dict[str, Any] = msgspec.to_builtins(answer)
    return {key: value for key, value in values.items() if key not in ("type", "id")}
