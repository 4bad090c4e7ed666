"""/v1/egress/rules: a user's own rules for requests outside, beside what the operator's say."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from aiohttp import web

from core.config import EgressRule, OpenRule
from core.egress.rule_messages import KeptRule
from core.hub.bodies import as_expected, as_json, read_body
from core.vault.handle import UserHandle

OwnerOf = Callable[[web.Request], Awaitable[tuple[str, UserHandle | None]]]
"""A request to the user whose rules it is about, and their handle where it was they who were let in."""


class RuleKeeper(Protocol):
    """Who keeps users' rules. Every method may raise core.hub.admin.AdministrationError."""

    async def of(self, user: str) -> list[KeptRule]:
        """A user's own, the oldest first."""
        ...

    async def add(self, user: str, rule: EgressRule) -> tuple[str, bool]:
        """Keep one: its id, and whether it is new."""
        ...

    async def remove(self, user: str, rule_id: str) -> None:
        """Forget one."""
        ...

    def operators(self, user: str) -> tuple[list[OpenRule], list[OpenRule]]:
        """The operator's ``allow`` and ``ceiling`` that speak of this user."""
        ...


class EgressApi:
    """``GET|POST PREFIX/egress/rules``, ``DELETE PREFIX/egress/rules/RULE``.

    Args:
        owner: whose a request is about; HubError where it may not.
    """

    def __init__(self, keeper: RuleKeeper, owner: OwnerOf) -> None:
        self._keeper = keeper
        self._owner = owner

    def routes(self, prefix: str) -> list[web.RouteDef]:
        """Where they answer."""
        return [
            web.get(f"{prefix}/egress/rules", self._all, allow_head=False),
            web.post(f"{prefix}/egress/rules", self._add),
            web.delete(f"{prefix}/egress/rules/{{rule}}", self._remove),
        ]

    async def _all(self, request: web.Request) -> web.Response:
        user, _ = await self._owner(request)
        rules = [_row(one.rule_id, one.rule, one.created_s) for one in await self._keeper.of(user)]
        allow, ceiling = self._keeper.operators(user)
        operator = {"allow": [_terms(rule) for rule in allow], "ceiling": [_terms(rule) for rule in ceiling]}
        return as_json({"object": "list", "data": rules, "operator": operator})

    async def _add(self, request: web.Request) -> web.Response:
        user, handle = await self._owner(request)
        rule = as_expected(await read_body(request, handle), EgressRule)
        rule_id, new = await self._keeper.add(user, rule)
        return as_json({"object": "egress_rule", "id": rule_id, **_terms(rule)}, 201 if new else 200)

    async def _remove(self, request: web.Request) -> web.Response:
        user, _ = await self._owner(request)
        rule_id = request.match_info["rule"]
        await self._keeper.remove(user, rule_id)
        return as_json({"object": "egress_rule", "id": rule_id, "deleted": True})


async def named_user(request: web.Request) -> tuple[str, None]:
    """The user in the path, for administrators."""
    return request.match_info["name"], None


def _row(rule_id: str, rule: EgressRule, created_s: int) -> dict[str, Any]:
    return {"object": "egress_rule", "id": rule_id, **_terms(rule), "created_s": created_s}


def _terms(rule: EgressRule) -> dict[str, Any]:
    """What a rule says of requests; whom else it is for, and which networks it opens, is the operator's."""
    return {name: getattr(rule, name) for name in EgressRule.__struct_fields__}
