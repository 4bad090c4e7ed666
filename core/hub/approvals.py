"""/v1/approvals: what a user is asked before a tool or a verb acts, and their answers."""

from typing import Any

import msgspec
from aiohttp import web

from core.approvals import AlreadyDecided, ApprovalDesk, NoSuchApproval
from core.errors import CoreError, SealError
from core.hub.bodies import as_json, parsed
from core.hub.errors import HubError, from_storage
from core.hub.tokens import Verifier, authenticate
from core.sessions import StorageError
from core.sessions.approvals import ApprovalRow
from core.vault.handle import UserHandle


class ApprovalAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of POST /v1/approvals/ID: whether it may act."""

    allow: bool


class ApprovalApi:
    """The handlers. Used on the hub's loop."""

    def __init__(self, verifier: Verifier, desk: ApprovalDesk) -> None:
        self._verifier = verifier
        self._desk = desk

    def routes(self) -> list[web.RouteDef]:
        """Where they answer."""
        return [
            web.get("/v1/approvals", self.all, allow_head=False),
            web.post("/v1/approvals/{id}", self.answer),
        ]

    async def all(self, request: web.Request) -> web.Response:
        """GET /v1/approvals: those that wait for the user, oldest first."""
        handle = await authenticate(request, self._verifier)
        try:
            rows = await self._desk.open(handle)
        except (StorageError, SealError) as error:
            raise from_storage(error) from None
        return as_json({"object": "list", "data": [shown(row) for row in rows]})

    async def answer(self, request: web.Request) -> web.Response:
        """POST /v1/approvals/ID: allow or refuse, once."""
        handle = await authenticate(request, self._verifier)
        asked = await parsed(request, ApprovalAnswer, handle)
        return as_json(shown(await answer(self._desk, handle, request.match_info["id"], asked.allow)))


async def answer(desk: ApprovalDesk, handle: UserHandle, approval: str, allow: bool) -> ApprovalRow:
    """Answer a question of this user's; HubError 404, 409."""
    try:
        return await desk.answer(handle, approval, allow)
    except CoreError as error:
        match error:
            case NoSuchApproval():
                raise HubError(404, str(error), "approval_not_found", param="id") from None
            case AlreadyDecided():
                extra = {"outcome": error.outcome}
                raise HubError(409, str(error), "already_decided", param="id", extra=extra) from None
            case StorageError() | SealError():
                raise from_storage(error) from None
        raise


def shown(row: ApprovalRow) -> dict[str, Any]:
    """A question as JSON."""
    wanted = row.wanted
    return {
        "object": "approval", "id": wanted.approval, "turn": row.turn, "session": row.session or None,
        "kind": wanted.kind, "name": wanted.name, "arguments": wanted.arguments, "cut": wanted.cut,
        "step": wanted.step or None, "created_s": row.created_s, "expires_s": wanted.expires_s,
        "outcome": row.outcome,
    }  # fmt: skip
