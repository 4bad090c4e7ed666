"""POST /v1/chat/completions: a client's request becomes a turn, the turn's log becomes its answer."""

import asyncio
import time

from aiohttp import web

from core.hub.answer import Answer
from core.hub.delivery import Delivery, Wanted
from core.hub.errors import HubError, invalid
from core.hub.intake import Intake
from core.hub.request import history, last_user_message, parse_chat
from core.hub.tokens import Verifier, authenticate, invalid_token
from core.hub.turns import SESSION_HEADER
from core.vault.handle import UserHandle

EVENTS_HEADER = "X-Certosa-Events"

_READ_TIMEOUT_S = 60.0


class Chat:
    """The handler. Used on the hub's loop."""

    def __init__(self, verifier: Verifier, delivery: Delivery, intake: Intake) -> None:
        self._verifier = verifier
        self._delivery = delivery
        self._intake = intake

    async def completions(self, request: web.Request) -> web.StreamResponse:
        """Answer one request; raises HubError until a stream has begun."""
        asked_s = time.monotonic()
        handle = await authenticate(request, self._verifier)
        session_id = one_header(request, SESSION_HEADER)
        events = switch(request, EVENTS_HEADER)
        with self._intake.room(handle, request):
            chat = parse_chat(await read_body(request, handle))
            inbox = self._intake.inbox()
            messages = history(chat, inbox)
            if session_id is not None:
                messages = [last_user_message(messages)]
            messages = await self._intake.keep(handle, chat.model, messages, inbox)
        include_usage = bool(chat.stream_options and chat.stream_options.include_usage)
        wanted = Wanted(
            handle=handle,
            agent=chat.model,
            messages=messages,
            session_id=session_id,
            sampling=chat.sampling,
            stream=bool(chat.stream),
            shape=lambda turn: Answer(turn, chat.model, events, include_usage),
            asked_s=asked_s,
            labels=chat.labels,
        )
        return await self._delivery.deliver(request, wanted)


async def read_body(request: web.Request, handle: UserHandle | None) -> bytes:
    """A request's body, bounded by the application's limit and in time; HubError otherwise.

    Args:
        handle: of who was let in, None for the operator. The body may have taken a minute: HubError 401
            for a user who was ended meanwhile, since what follows goes by a name that may be another's.
    """
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise HubError(415, "send the body uncompressed", "unsupported_encoding")
    data = bytearray()
    try:
        async with asyncio.timeout(_READ_TIMEOUT_S):
            # request.read() would keep the body for as long as the answer takes
            while piece := await request.content.readany():
                data += piece
                if len(data) > request.client_max_size:
                    raise web.HTTPRequestEntityTooLarge(request.client_max_size, len(data))
    except TimeoutError:
        raise HubError(408, "the body did not come in time", "request_timeout") from None
    if handle is not None and not handle.standing.is_good():
        raise invalid_token()
    return bytes(data)


def one_header(request: web.Request, name: str) -> str | None:
    """A header's value, None without one; HubError 400 where it came more than once."""
    found = request.headers.getall(name, [])
    if len(found) > 1:
        raise invalid(f"the {name} header came more than once", "duplicate_header", name)
    return found[0] if found else None


def switch(request: web.Request, name: str) -> bool:
    """A header that is ``on`` or ``off`` (the default); HubError 400 for anything else."""
    value = (one_header(request, name) or "off").lower()
    if value not in ("on", "off"):
        raise invalid(f"{name} is `on` or `off`", "invalid_value", name)
    return value == "on"
