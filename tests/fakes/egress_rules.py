"""Users' egress rules, kept in memory."""

from core.config import EgressRule, OpenRule
from core.egress.rule_messages import KeptRule
from core.hub.admin import AdministrationError


class FakeRules:
    """Implements core.hub.egress.RuleKeeper."""

    def __init__(self) -> None:
        self.kept: dict[str, list[KeptRule]] = {}
        self.allow: list[OpenRule] = []
        self.ceiling: list[OpenRule] = []

    async def of(self, user: str) -> list[KeptRule]:
        return self.kept.get(user, [])

    async def add(self, user: str, rule: EgressRule) -> tuple[str, bool]:
        rules = self.kept.setdefault(user, [])
        for kept in rules:
            if kept.rule == rule:
                return kept.rule_id, False
        if not rule.methods:
            raise AdministrationError("invalid", "methods: name at least one")
        rules.append(KeptRule(f"rule_{len(rules):08x}", rule, 1_000))
        return rules[-1].rule_id, True

    async def remove(self, user: str, rule_id: str) -> None:
        rules = self.kept.get(user, [])
        left = [kept for kept in rules if kept.rule_id != rule_id]
        if len(left) == len(rules):
            raise AdministrationError("not_found", "no such rule")
        self.kept[user] = left

    def operators(self, user: str) -> tuple[list[OpenRule], list[OpenRule]]:
        def of(rules: list[OpenRule]) -> list[OpenRule]:
            return [rule for rule in rules if rule.users is None or user in rule.users]

        return of(self.allow), of(self.ceiling)
