"""The routes of what is live: the WebSocket, the event stream, starting a turn, and their schema."""

import msgspec
from aiohttp import web

from core.hub.access import ACCESS
from core.hub.bodies import parsed
from core.hub.errors import HubError
from core.hub.live.handshake import check_origin, offered_token
from core.hub.live.parts import LiveParts
from core.hub.live.requests import TurnAsked
from core.hub.live.schema import Schemas
from core.hub.live.socket import Socket
from core.hub.live.starting import Starting
from core.hub.live.stream import EventStreams
from core.hub.live.streams import Streams
from core.hub.tokens import authenticate, token_of
from core.hub.turns import SESSION_HEADER


class Live:
    """The handlers, and the end of what they have open. Used on the hub's loop."""

    def __init__(self, parts: LiveParts) -> None:
        self._parts = parts
        self._streams = Streams(parts.verifier, parts.config.per_user, parts.metrics)
        self._starting = Starting(parts.agents, parts.starter)

    def routes(self) -> list[web.RouteDef]:
        """Where they answer."""
        schemas = Schemas()
        return [
            web.get("/v1/ws", self.connect, allow_head=False),
            web.get(
                "/v1/sessions/{id}/events", EventStreams(self._parts, self._streams).events, allow_head=False
            ),
            web.post("/v1/sessions/{id}/turns", self.start),
            web.get("/v1/schema", schemas.all, allow_head=False),
            web.get("/v1/schema/{name}", schemas.one, allow_head=False),
        ]

    async def connect(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/ws: upgrade, and serve until the end."""
        headers = request.headers
        if headers.get("Upgrade", "").lower() != "websocket":
            raise HubError(
                426, "this is a WebSocket's address", "upgrade_required", headers={"Upgrade": "websocket"}
            )
        access = request.config_dict[ACCESS]
        check_origin(headers.getall("Origin", []), headers.getall("Host", []), access.allows_origin)
        offered = offered_token(request)
        handle = await authenticate(request, self._parts.verifier, offered)
        socket = Socket(self._parts, self._starting, handle)
        with self._streams.open(handle, token_of(request, offered), "websocket", socket.end):
            return await socket.run(request)

    async def start(self, request: web.Request) -> web.Response:
        """POST /v1/sessions/ID/turns: 202 with the turn's id, and the event id to watch from.

        200 where the same ``key`` has started it before.
        """
        handle = await authenticate(request, self._parts.verifier)
        asked = await parsed(request, TurnAsked, handle)
        session = request.match_info["id"]
        try:
            began = await self._starting.start(handle, session, asked)
        except HubError as error:
            if error.param == SESSION_HEADER:
                error.param = "id"  # here the session stands in the path
            raise
        body = msgspec.json.encode({
            "object": "turn", "id": began.turn, "session": session, "after": began.after,
            "events": f"/v1/sessions/{session}/events?after={began.after}&until=idle",
        })  # fmt: skip
        return web.Response(body=body, status=202 if began.fresh else 200, content_type="application/json")

    def end_user(self, user: str) -> int:
        """End all connections of a user's."""
        return self._streams.end_user(user)

    async def recheck(self) -> None:
        """End the connections whose token was revoked."""
        await self._streams.recheck()

    async def stop(self) -> None:
        """End all of them."""
        await self._streams.stop()
