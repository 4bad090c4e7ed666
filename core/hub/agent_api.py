"""/v1/agents: a user's agents as JSON; kept as the files that turns are started from."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from aiohttp import web

from core.hub.agent_files import AgentFiles, NotReady
from core.hub.agents import AgentEntry, AgentFile, AgentFileError, Agents, NoSuchAgent
from core.hub.bodies import as_json, read_body
from core.hub.errors import HubError, invalid
from core.hub.tokens import Verifier, authenticate


class AgentApi:
    """The handlers. Used on the hub's loop."""

    def __init__(self, verifier: Verifier, agents: Agents) -> None:
        self._verifier = verifier
        self._agents = agents
        self._files = AgentFiles(agents)

    def routes(self) -> list[web.RouteDef]:
        """Where they answer."""
        one = "/v1/agents/{name}"
        return [
            web.get("/v1/agents", self.all, allow_head=False),
            web.get(one, self.show, allow_head=False),
            web.put(one, self.put),
            web.delete(one, self.delete),
        ]

    async def all(self, request: web.Request) -> web.Response:
        """GET /v1/agents: every agent of the user's; one whose file won't do says why."""
        handle = await authenticate(request, self._verifier)
        with _explained():
            entries = await asyncio.to_thread(self._agents.list, handle.user)
            rows = await asyncio.to_thread(lambda: [self._row(handle.user, entry) for entry in entries])
        return as_json({"object": "list", "data": rows})

    async def show(self, request: web.Request) -> web.Response:
        """GET /v1/agents/NAME: the agent as turns use it, and what its file says of it."""
        handle = await authenticate(request, self._verifier)
        with _explained():
            return as_json(await asyncio.to_thread(self._object, handle.user, request.match_info["name"]))

    async def put(self, request: web.Request) -> web.Response:
        """PUT /v1/agents/NAME: the whole file as JSON; what it leaves out is as configured."""
        handle = await authenticate(request, self._verifier)
        name, body = request.match_info["name"], await read_body(request, handle)
        with _explained():
            new = await asyncio.to_thread(self._files.put, handle.user, name, body)
            shown = await asyncio.to_thread(self._object, handle.user, name)
        return as_json(shown, 201 if new else 200)

    async def delete(self, request: web.Request) -> web.Response:
        """DELETE /v1/agents/NAME: its file; `assistant` goes on as configured."""
        handle = await authenticate(request, self._verifier)
        name = request.match_info["name"]
        with _explained():
            await asyncio.to_thread(self._files.delete, handle.user, name)
        return as_json({"object": "agent", "name": name, "deleted": True})

    def _row(self, user: str, entry: AgentEntry) -> dict[str, object]:
        try:
            agent = self._agents.get(user, entry.name)
        except AgentFileError as error:
            return {"object": "agent", "name": entry.name, "error": str(error)}
        return {
            "object": "agent", "name": agent.name, "provider": agent.provider, "model": agent.model,
            "created_s": entry.created_s,
        }  # fmt: skip

    def _object(self, user: str, name: str) -> dict[str, object]:
        agent = self._agents.get(user, name)
        file = self._agents.file(user, name) or AgentFile()
        limits = msgspec.structs.asdict(agent.limits)
        # asdict: a struct of the wire leaves its defaults out
        return {"object": "agent", **msgspec.structs.asdict(agent), "limits": limits, "own": file}


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except NoSuchAgent as error:
        raise HubError(404, str(error), "agent_not_found", param="name") from None
    except NotReady as error:
        raise HubError(503, str(error), "unavailable", retry_after_s=5) from None
    except AgentFileError as error:
        raise invalid(str(error), "invalid_agent") from None
