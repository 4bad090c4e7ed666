"""Users' own egress rules, as the hub asks for them: egress keeps them and decides by them."""

from collections.abc import Callable

from core.audited import CoreAuditor
from core.config import EgressRule, EgressSection, OpenRule
from core.egress.policy import is_for
from core.egress.rule_messages import AddEgressRule, KeptRule, ListEgressRules, RemoveEgressRule
from core.egress_link import EgressLink
from core.refusals import answered, known_user
from core.users import Users


class RuleDesk:
    """Implements core.hub.egress.RuleKeeper.

    Args:
        section: of the configuration in use.
    """

    def __init__(
        self, link: EgressLink, users: Users, auditor: CoreAuditor, section: Callable[[], EgressSection]
    ) -> None:
        self._link, self._users, self._audit, self._section = link, users, auditor, section

    async def of(self, user: str) -> list[KeptRule]:
        """See the protocol."""
        await known_user(self._users, user)
        found = await answered(self._link.ask(lambda i: ListEgressRules(i, user)))
        return list(found.rules)

    async def add(self, user: str, rule: EgressRule) -> tuple[str, bool]:
        """See the protocol."""
        await known_user(self._users, user)
        async with self._audit.act("egress_rule_changed", user, rule.host):
            added = await answered(self._link.ask(lambda i: AddEgressRule(i, user, rule)))
        return str(added.rule_id), bool(added.new)

    async def remove(self, user: str, rule_id: str) -> None:
        """See the protocol."""
        await known_user(self._users, user)
        async with self._audit.act("egress_rule_changed", user, rule_id):
            await answered(self._link.ask(lambda i: RemoveEgressRule(i, user, rule_id)), "not_found")

    def operators(self, user: str) -> tuple[list[OpenRule], list[OpenRule]]:
        """See the protocol."""
        section = self._section()
        return (
            [rule for rule in section.allow if is_for(rule, user)],
            [rule for rule in section.ceiling if is_for(rule, user)],
        )
