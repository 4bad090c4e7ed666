"""GET /v1/openapi.json, for everybody: it says what this version has, and nothing of this server."""

from aiohttp import web

from core.hub.openapi.document import encoded_document

OPENAPI_PATH = "/v1/openapi.json"


async def serve_openapi(_: web.Request) -> web.Response:
    """The document."""
    return web.Response(body=encoded_document(), content_type="application/json")
