"""POST /v1/chat/completions: a client's request becomes a turn, the turn's log becomes its answer."""

import time

from aiohttp import web

from core.hub.answer import Answer
from core.hub.bodies import read_body
from core.hub.delivery import Delivery, Wanted
from core.hub.errors import invalid
from core.hub.intake import Intake
from core.hub.request import history, last_user_message, parse_chat
from core.hub.tokens import Verifier, authenticate
from core.hub.turns import SESSION_HEADER

EVENTS_HEADER = "X-Certosa-Events"


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
