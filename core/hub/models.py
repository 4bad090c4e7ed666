"""GET /v1/models and /v1/models/NAME: a user's agents, in OpenAI's shape or in Anthropic's.

A client of Anthropic's says so by its header ``anthropic-version``. There is one page, with all.
"""

from datetime import UTC, datetime

from aiohttp import web

from core.hub.agents import AgentEntry, AgentFileError, Agents
from core.hub.bodies import as_json
from core.hub.errors import HubError, invalid
from core.hub.tokens import Verifier, authenticate


class Models:
    """The handlers. Used on the hub's loop."""

    def __init__(self, verifier: Verifier, agents: Agents) -> None:
        self._verifier = verifier
        self._agents = agents

    async def all(self, request: web.Request) -> web.Response:
        """Every agent of the user's."""
        entries = await self._entries(request)
        if _anthropic(request):
            data = [_anthropic_model(entry) for entry in entries]
            ends = {"first_id": entries[0].name, "last_id": entries[-1].name}
            return as_json({"data": data, "has_more": False, **ends})
        return as_json({"object": "list", "data": [_model(entry) for entry in entries]})

    async def one(self, request: web.Request) -> web.Response:
        """One of them, or 404."""
        name = request.match_info["name"]
        for entry in await self._entries(request):
            if entry.name == name:
                return as_json(_anthropic_model(entry) if _anthropic(request) else _model(entry))
        raise HubError(404, "you have no agent of this name", "model_not_found", param="model")

    async def _entries(self, request: web.Request) -> list[AgentEntry]:
        handle = await authenticate(request, self._verifier)
        try:
            return self._agents.list(handle.user)
        except AgentFileError as error:
            raise invalid(str(error), "invalid_agent") from None


def _model(entry: AgentEntry) -> dict[str, object]:
    return {
        "id": entry.name, "object": "model", "created": entry.created_s, "owned_by": "certosa"
    }  # fmt: skip


def _anthropic(request: web.Request) -> bool:
    return "anthropic-version" in request.headers


def _anthropic_model(entry: AgentEntry) -> dict[str, object]:
    created = datetime.fromtimestamp(entry.created_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"type": "model", "id": entry.name, "display_name": entry.name, "created_at": created}
