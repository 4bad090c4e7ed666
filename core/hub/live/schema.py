"""The JSON Schema of what is said here, made from the structs that say it.

Served at /v1/schema/NAME.json, and kept in docs/schema by scripts/schema; a test compares the two.
"""

from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from core.hub.errors import HubError
from core.hub.live.events import AnyEvent
from core.hub.live.requests import AnyAnswer, AnyRequest, TurnAsked

_KINDS: dict[str, tuple[Any, str]] = {
    "events": (AnyEvent, "What happens in a session: data of the event stream, messages of the WebSocket."),
    "requests": (AnyRequest, "What a client says on the WebSocket."),
    "answers": (AnyAnswer, "What the server says on the WebSocket beside the events."),
    "turn": (TurnAsked, "The body of POST /v1/sessions/ID/turns."),
}


def schema(name: str) -> dict[str, Any]:
    """One of them, by its name. KeyError."""
    kind, text = _KINDS[name]
    made = msgspec.json.schema(kind)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Certosa: {name}",
        "description": text,
        **made,
    }


def documents() -> dict[str, bytes]:
    """All of them, as files."""
    return {
        f"{name}.json": msgspec.json.format(msgspec.json.encode(schema(name), order="sorted"), indent=2)
        + b"\n"
        for name in _KINDS
    }


class Schemas:
    """GET /v1/schema and /v1/schema/NAME.json, for everybody."""

    def __init__(self) -> None:
        self._documents = documents()

    async def all(self, _: web.Request) -> web.Response:
        """Where they are."""
        names = [f"/v1/schema/{name}" for name in self._documents]
        body = msgspec.json.encode({"object": "list", "data": names})
        return web.Response(body=body, content_type="application/json")

    async def one(self, request: web.Request) -> web.Response:
        """One of them."""
        found = self._documents.get(request.match_info["name"])
        if found is None:
            raise HubError(404, "there is no such schema; GET /v1/schema lists them", "not_found")
        return web.Response(body=found, content_type="application/schema+json")


def write(directory: Path) -> None:
    """Write all of them into a directory."""
    for file, data in documents().items():
        (directory / file).write_bytes(data)
