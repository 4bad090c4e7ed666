"""The ledger and the audit log as the hub sees them, in memory."""

from collections.abc import Sequence
from typing import Any

from core.egress.account_messages import LimitChange
from core.hub.admin import AdministrationError


class FakeAccounts:
    """Implements core.hub.usage.Accounts; ``asked`` is what it was asked for, in order."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.faults: tuple[str, ...] = ()
        self.limits: dict[tuple[str, str, str], int | None] = {}

    async def usage(self, user: str, since: str, until: str) -> dict[str, Any]:
        self.asked.append(("usage", user, since, until))
        row = {
            "user": user or "bob", "day": since or "2026-12-02", "kind": "chat", "provider": "acme",
            "model": "m1", "requests": 2, "input_tokens": 1_000, "output_tokens": 200, "bytes": 5_000,
            "cost": "0.50", "estimated": 1, "unpriced": 0,
        }  # fmt: skip
        return {"rows": [row], "cut": False, "currency": "USD", "zone": "UTC"}

    async def standing(self, user: str) -> dict[str, Any]:
        self.asked.append(("standing", user))
        if user == "nobody":
            raise AdministrationError("not_found", "there is no user 'nobody'")
        names = ("tokens", "requests", "bytes", "cost")
        hard = {name: self.limits.get((user, "hard", name)) for name in names}
        dimensions = {
            name: {
                "used": "0.50" if name == "cost" else 1_200,
                "held": "0.00" if name == "cost" else 0,
                "soft": None,
                "hard": hard[name],
            }
            for name in names
        }
        return {
            "user": user, "day": "2026-12-02", "resets_at_s": 1_796_256_000, "currency": "USD", "zone": "UTC",
            "dimensions": dimensions, "own": [f"hard.{name}" for name in names if hard[name] is not None],
        }  # fmt: skip

    async def set_limits(self, user: str, changes: Sequence[LimitChange]) -> dict[str, Any]:
        self.asked.append(("set_limits", user, tuple(changes)))
        for change in changes:
            self.limits[user, change.level, change.dimension] = change.most
        return await self.standing(user)

    async def audit(self, user: str, kind: str, since: str, until: str, most: int) -> dict[str, Any]:
        self.asked.append(("audit", user, kind, since, until, most))
        line = {
            "seq": 7, "at": "2026-12-02T08:00:00.000Z", "by": "core", "kind": "user_added", "outcome": "done",
            "who": "uid:0", "user": "alice", "on": "", "request": "req_1", "detail": "", "count": 1,
        }  # fmt: skip
        return {"lines": [line]}

    async def verify_audit(self) -> dict[str, Any]:
        return {"lines": 7, "files": 1, "beyond": 0, "faults": list(self.faults)}
