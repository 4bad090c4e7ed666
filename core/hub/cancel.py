"""POST /v1/turns/TURN/cancel: end a turn that goes on without its client."""

import msgspec
from aiohttp import web

from core.hub.tokens import Verifier, authenticate
from core.hub.turns import Starter


class Cancel:
    """The handler. Used on the hub's loop."""

    def __init__(self, verifier: Verifier, starter: Starter) -> None:
        self._verifier = verifier
        self._starter = starter

    async def cancel(self, request: web.Request) -> web.Response:
        """202 once the turn is told to end; its own stream says when it has.

        404 for a turn that has ended, and the same for one of another user's.
        """
        handle = await authenticate(request, self._verifier)
        turn = self._starter.cancel_by_id(handle.user, request.match_info["turn"])
        body = msgspec.json.encode({"id": turn.id, "object": "turn", "cancelled": True})
        return web.Response(body=body, status=202, content_type="application/json")
