"""What core and egress say to each other about users' own rules for requests outside."""

import msgspec

from core.config import EgressRule
from core.egress.message_base import LinkMessage


class AddEgressRule(LinkMessage, frozen=True):
    """Keep a rule of a user's. Answer: EgressRuleAdded or Refused."""

    user: str
    rule: EgressRule


class RemoveEgressRule(LinkMessage, frozen=True):
    """Forget one. Answer: Ok or Refused."""

    user: str
    rule_id: str


class ListEgressRules(LinkMessage, frozen=True):
    """Answer: EgressRules, of this user alone."""

    user: str


class KeptRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A user's own rule as it is kept; ``created_s`` is Unix seconds."""

    rule_id: str
    rule: EgressRule
    created_s: int


class EgressRuleAdded(LinkMessage, frozen=True):
    """It counts from the next request on; ``new`` is False where there was the same one already."""

    rule_id: str
    new: bool


class EgressRules(LinkMessage, frozen=True):
    """A user's own, the oldest first."""

    rules: tuple[KeptRule, ...]


RuleQuestion = AddEgressRule | RemoveEgressRule | ListEgressRules
RuleAnswer = EgressRuleAdded | EgressRules
