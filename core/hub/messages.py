"""POST /v1/messages: Anthropic's clients, as /v1/chat/completions is for OpenAI's."""

import time

from aiohttp import web

from core.hub.bodies import read_body
from core.hub.chat import EVENTS_HEADER, one_header, switch
from core.hub.delivery import Delivery, Wanted
from core.hub.errors import invalid
from core.hub.intake import Intake
from core.hub.messages_answer import MessagesAnswer
from core.hub.messages_request import history, parse_messages
from core.hub.request import last_user_message
from core.hub.tokens import Verifier, authenticate
from core.hub.turns import SESSION_HEADER


class Messages:
    """The handler. Used on the hub's loop."""

    def __init__(self, verifier: Verifier, delivery: Delivery, intake: Intake) -> None:
        self._verifier = verifier
        self._delivery = delivery
        self._intake = intake

    async def create(self, request: web.Request) -> web.StreamResponse:
        """Answer one request; raises HubError until a stream has begun."""
        asked_s = time.monotonic()
        handle = await authenticate(request, self._verifier)
        session_id = one_header(request, SESSION_HEADER)
        if switch(request, EVENTS_HEADER):
            raise invalid(
                "this API has no place for a turn's other events: use /v1/chat/completions",
                "invalid_value",
                EVENTS_HEADER,
            )
        with self._intake.room(handle, request):
            asked = parse_messages(await read_body(request, handle))
            inbox = self._intake.inbox()
            messages = history(asked, inbox)
            if session_id is not None:
                messages = [last_user_message(messages)]
            messages = await self._intake.keep(handle, asked.model, messages, inbox)
        wanted = Wanted(
            handle=handle,
            agent=asked.model,
            messages=messages,
            session_id=session_id,
            sampling=asked.sampling,
            stream=bool(asked.stream),
            shape=lambda turn: MessagesAnswer(turn, asked.model),
            asked_s=asked_s,
            labels=asked.labels,
        )
        return await self._delivery.deliver(request, wanted)
