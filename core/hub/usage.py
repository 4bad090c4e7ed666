"""Usage, limits and the audit log over HTTP: a user's own at /v1/usage, all of it for administrators."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Protocol

import msgspec
from aiohttp import web

from core.egress.account_messages import LimitChange
from core.hub.bodies import as_expected, as_json, read_body
from core.hub.errors import HubError, invalid
from core.hub.tokens import Verifier, authenticate
from core.ledger.limits import to_pico
from core.ledger.metering import Dimension, Level
from core.ledger.section import MAX_COST, MOST, cost_fault

MOST_LINES = 1_000
_NUMBER = re.compile("[0-9]{1,6}")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_LINES = 100


class Accounts(Protocol):
    """What is known of usage and the audit log; builtin objects only.

    Every method may raise core.hub.admin.AdministrationError.
    """

    async def usage(self, user: str, since: str, until: str) -> dict[str, Any]:
        """``rows`` of days from ``since`` to ``until``, both included; empty: today, everybody's."""
        ...

    async def standing(self, user: str) -> dict[str, Any]:
        """What a user used today and may use; see core.egress.account_messages.StandingTold."""
        ...

    async def set_limits(self, user: str, changes: Sequence[LimitChange]) -> dict[str, Any]:
        """Give a user limits of their own; returns how they stand then."""
        ...

    async def audit(self, user: str, kind: str, since: str, until: str, most: int) -> dict[str, Any]:
        """``lines`` of the audit log, the latest ``most`` that match."""
        ...

    async def verify_audit(self) -> dict[str, Any]:
        """``lines``, ``files``, ``beyond`` and ``faults`` of the whole log."""
        ...


class UsageApi:
    """``GET /v1/usage?day=DAY`` or ``?since=DAY&until=DAY``, for the token's user alone."""

    def __init__(self, verifier: Verifier, accounts: Accounts) -> None:
        self._verifier = verifier
        self._accounts = accounts

    def routes(self) -> list[web.RouteDef]:
        """What to add to the application."""
        return [web.get("/v1/usage", self._own, allow_head=False)]

    async def _own(self, request: web.Request) -> web.Response:
        handle = await authenticate(request, self._verifier)
        since, until = days_of(request.query)
        standing = await self._accounts.standing(handle.user)
        used = await self._accounts.usage(handle.user, since, until)
        return as_json({"object": "usage", "today": standing, **_data(used)})


class AccountsApi:
    """For administrators: ``GET /usage``, ``GET /users/NAME/usage``, ``GET|PATCH /users/NAME/limits``,
    ``GET /audit``, ``POST /audit/verify``; each below a prefix.
    """

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    def routes(self, prefix: str) -> list[web.RouteDef]:
        """What to add to the application."""
        return [
            web.get(f"{prefix}/usage", self._usage, allow_head=False),
            web.get(f"{prefix}/users/{{name}}/usage", self._usage, allow_head=False),
            web.get(f"{prefix}/users/{{name}}/limits", self._limits, allow_head=False),
            web.patch(f"{prefix}/users/{{name}}/limits", self._set_limits),
            web.get(f"{prefix}/audit", self._audit, allow_head=False),
            web.post(f"{prefix}/audit/verify", self._verify),
        ]

    async def _usage(self, request: web.Request) -> web.Response:
        user = request.match_info.get("name", "")
        since, until = days_of(request.query)
        today = {"today": await self._accounts.standing(user)} if user else {}
        used = await self._accounts.usage(user, since, until)
        return as_json({"object": "usage", **today, **_data(used)})

    async def _limits(self, request: web.Request) -> web.Response:
        return as_json(await self._accounts.standing(request.match_info["name"]))

    async def _set_limits(self, request: web.Request) -> web.Response:
        changes = parse_changes(await read_body(request, None))
        return as_json(await self._accounts.set_limits(request.match_info["name"], changes))

    async def _audit(self, request: web.Request) -> web.Response:
        query = request.query
        _known(query, ("user", "kind", "since", "until", "limit"))
        limit = query.get("limit", str(_LINES))
        if not (_NUMBER.fullmatch(limit) and 1 <= int(limit) <= MOST_LINES):
            raise invalid(f"limit is a number from 1 to {MOST_LINES}", "invalid_value", "limit")
        since, until = (_time(query, name) for name in ("since", "until"))
        user, kind = query.get("user", ""), query.get("kind", "")
        return as_json(await self._accounts.audit(user, kind, since, until, int(limit)))

    async def _verify(self, _: web.Request) -> web.Response:
        return as_json(await self._accounts.verify_audit())


def days_of(query: Mapping[str, str]) -> tuple[str, str]:
    """The days a request asks for, ("", "") for today. HubError 400."""
    _known(query, ("day", "since", "until"))
    if "day" in query and len(query) > 1:
        raise invalid("say day, or since and until", "invalid_value", "day")
    since, until = (query.get("day", query.get(name, "")) for name in ("since", "until"))
    for name, value in (("since", since), ("until", until)):
        try:
            good = not value or date.fromisoformat(value).isoformat() == value
        except ValueError:
            good = False
        if not good:
            raise invalid(f"{name}: a day is written as 2026-12-31", "invalid_value", name)
    return since, until


# what is published is stricter than what is read: whatever is wrong with a limit is said by its name
_Number = Annotated[int, msgspec.Meta(extra_json_schema={"minimum": 0, "maximum": MOST})]
_Whole = Annotated[int, msgspec.Meta(extra_json_schema={"minimum": 0, "maximum": int(MAX_COST)})]
_Default = Annotated[str, msgspec.Meta(extra_json_schema={"const": "default"})]
_Money = Annotated[
    str,
    msgspec.Meta(
        extra_json_schema={"pattern": r"^(?:default|100000(?:\.0{1,6})?|[0-9]{1,5}(?:\.[0-9]{1,6})?)$"}
    ),
]


class OwnLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of one user's own; null is none, ``"default"`` the configuration's, what is left out stays."""

    tokens: _Number | _Default | msgspec.UnsetType | None = msgspec.UNSET
    requests: _Number | _Default | msgspec.UnsetType | None = msgspec.UNSET
    bytes: _Number | _Default | msgspec.UnsetType | None = msgspec.UNSET
    cost: _Whole | _Money | msgspec.UnsetType | None = msgspec.UNSET


class LimitChanges(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Past ``soft`` a user is told, past ``hard`` refused. At least one is named."""

    soft: OwnLimits = OwnLimits()
    hard: OwnLimits = OwnLimits()


def parse_changes(body: bytes) -> list[LimitChange]:
    """``{"soft"|"hard": {"tokens"|"requests"|"bytes": NUMBER, "cost": "DECIMAL"}}``; null is no limit,
    ``"default"`` the configuration's. HubError 400.
    """
    given = as_expected(body or b"{}", LimitChanges)
    changes: list[LimitChange] = []
    levels: tuple[tuple[Level, OwnLimits], ...] = (("soft", given.soft), ("hard", given.hard))
    for level, limits in levels:
        for name, value in msgspec.structs.asdict(limits).items():
            if value is not msgspec.UNSET:
                changes.append(_change(level, name, value))
    if not changes:
        raise invalid('name at least one limit, such as {"hard": {"tokens": 100000}}', "invalid_request")
    return changes


def _change(level: Level, name: Any, value: int | str | None) -> LimitChange:
    dimension: Dimension = name
    if value is None:
        return LimitChange(level, dimension)
    if value == "default":
        return LimitChange(level, dimension, default=True)
    if dimension == "cost":
        try:
            money = Decimal(value)
            fault = cost_fault(money)
        except InvalidOperation:
            fault = 'a decimal number such as "2.50"'
        if fault:
            raise invalid(f'{level}.cost: {fault}, null or "default"', "invalid_value", f"{level}.cost")
        return LimitChange(level, dimension, to_pico(money))
    if not isinstance(value, int) or not 0 <= value <= MOST:
        what = f'a number from 0 to {MOST}, null or "default"'
        raise invalid(f"{level}.{name}: {what}", "invalid_value", f"{level}.{name}")
    return LimitChange(level, dimension, value)


def _time(query: Mapping[str, str], name: str) -> str:
    """A time or a day as lines of the log have them, in UTC; what comes without a zone is UTC."""
    text = query.get(name, "")
    if not text:
        return ""
    try:
        at = datetime.fromisoformat(text)
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        raise invalid(f"{name}: write 2026-12-31 or 2026-12-31T08:00Z", "invalid_value", name) from None
    if _DAY.fullmatch(text):
        return text if name == "since" else f"{text}T24"
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _known(query: Mapping[str, str], names: Sequence[str]) -> None:
    for name in query:
        if name not in names:
            raise HubError(
                400, f"no such parameter; there are {', '.join(names)}", "unknown_parameter", param=name[:64]
            )


def _data(used: dict[str, Any]) -> dict[str, Any]:
    return {"data": used.pop("rows"), **used}
