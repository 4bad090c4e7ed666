"""Users' own egress rules, as the hub asks for them: egress keeps them and decides by them."""

import asyncio
from collections.abc import Callable
from typing import Any

from core.audited import CoreAuditor
from core.config import EgressRule, EgressSection, OpenRule
from core.egress.policy import is_for
from core.egress.rule_messages import AddEgressRule, KeptRule, ListEgressRules, RemoveEgressRule
from core.egress_link import EgressLink, VaultRefused
from core.errors import LinkError
from core.hub.admin import AdministrationError
from core.users import NoSuchUser, UserNameError, Users, check_user_id


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
        await self._check(user)
        found = await self._ask("invalid", lambda i: ListEgressRules(i, user))
        return list(found.rules)

    async def add(self, user: str, rule: EgressRule) -> tuple[str, bool]:
        """See the protocol."""
        await self._check(user)
        async with self._audit.act("egress_rule_changed", user, rule.host):
            added = await self._ask("invalid", lambda i: AddEgressRule(i, user, rule))
        return str(added.rule_id), bool(added.new)

    async def remove(self, user: str, rule_id: str) -> None:
        """See the protocol."""
        await self._check(user)
        async with self._audit.act("egress_rule_changed", user, rule_id):
            await self._ask("not_found", lambda i: RemoveEgressRule(i, user, rule_id))

    def operators(self, user: str) -> tuple[list[OpenRule], list[OpenRule]]:
        """See the protocol."""
        section = self._section()
        return (
            [rule for rule in section.allow if is_for(rule, user)],
            [rule for rule in section.ceiling if is_for(rule, user)],
        )

    async def _check(self, user: str) -> None:
        try:
            await asyncio.to_thread(self._users.get, check_user_id(user))
        except (NoSuchUser, UserNameError) as error:
            raise AdministrationError("not_found", str(error)) from None

    async def _ask(self, refused: Any, make: Callable[[int], Any]) -> Any:
        try:
            return await self._link.ask(make)
        except VaultRefused as error:
            raise AdministrationError(refused, str(error)) from None
        except LinkError as error:
            raise AdministrationError("unavailable", str(error)) from None
