"""``POST /v1/acts`` on the operator's socket: what a command does by itself, for the audit log.

Such a command edits a file or reads them all without the server's help; it says so before and after.
"""

from typing import Annotated, Literal, Protocol

import msgspec
from aiohttp import web

from core.audit.records import CoreKind, Outcome
from core.hub.bodies import as_expected, read_body


class ActBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is about to be done (``asked``), or was."""

    kind: Literal["backup_made", "provider_set", "provider_removed", "oauth_set", "oauth_removed"]
    outcome: Literal["asked", "done", "failed"]
    on: Annotated[str, msgspec.Meta(max_length=256)] = ""
    detail: Annotated[str, msgspec.Meta(max_length=200)] = ""


class Reporter(Protocol):
    """Who has it recorded."""

    async def report(self, kind: CoreKind, outcome: Outcome, on: str, detail: str) -> None:
        """With who asked; ``asked`` is on the disk on return.

        Raises AdministrationError where that cannot be: then it must not be done.
        """
        ...


class ActsApi:
    """The route."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def routes(self) -> list[web.RouteDef]:
        """Where it answers."""
        return [web.post("/v1/acts", self.report)]

    async def report(self, request: web.Request) -> web.Response:
        """Have an act recorded."""
        body = as_expected(await read_body(request, None), ActBody)
        await self._reporter.report(body.kind, body.outcome, body.on, body.detail)
        return web.json_response({"recorded": True}, status=201)
