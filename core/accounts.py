"""What core answers about usage, limits and the audit log: it asks egress, which keeps them."""

from collections.abc import Sequence
from typing import Any

from core.audited import CoreAuditor
from core.egress.account_messages import (
    AskAudit,
    AskStanding,
    AskUsage,
    LimitChange,
    SetLimits,
    VerifyAudit,
    builtins_of,
)
from core.egress_link import EgressLink
from core.refusals import answered, known_user
from core.users import Users


class CoreAccounts:
    """Implements core.hub.usage.Accounts."""

    def __init__(self, link: EgressLink, users: Users, auditor: CoreAuditor) -> None:
        self._link = link
        self._users = users
        self._audit = auditor

    async def usage(self, user: str, since: str, until: str) -> dict[str, Any]:
        """See the protocol."""
        return await self._ask(lambda i: AskUsage(i, user, since, until))

    async def standing(self, user: str) -> dict[str, Any]:
        """See the protocol."""
        await known_user(self._users, user)
        return await self._ask(lambda i: AskStanding(i, user))

    async def set_limits(self, user: str, changes: Sequence[LimitChange]) -> dict[str, Any]:
        """See the protocol."""
        await known_user(self._users, user)
        told = ", ".join(f"{at.level}.{at.dimension}={_told(at)}" for at in changes)
        async with self._audit.act("limits_set", user, detail=told):
            await self._ask(lambda i: SetLimits(i, user, tuple(changes)))
        return await self.standing(user)

    async def audit(self, user: str, kind: str, since: str, until: str, most: int) -> dict[str, Any]:
        """See the protocol."""
        return await self._ask(lambda i: AskAudit(i, user, kind, since, until, most))

    async def verify_audit(self) -> dict[str, Any]:
        """See the protocol."""
        found: dict[str, Any] = (await self._ask(VerifyAudit))["verdict"]
        return found

    async def _ask(self, make: Any) -> dict[str, Any]:
        return builtins_of(await answered(self._link.ask(make)))


def _told(change: LimitChange) -> str:
    return "default" if change.default else "none" if change.most is None else str(change.most)
