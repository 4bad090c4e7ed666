"""Where an API's description is served: it says what this version has, and nothing of this server."""

from aiohttp import web

from core.hub.openapi.document import encoded_document
from core.hub.openapi.route import Api


def openapi_route(api: Api) -> web.RouteDef:
    """What to add to the application that the API is; who may read it is for the application to say."""

    async def serve(_: web.Request) -> web.Response:
        return web.Response(body=encoded_document(api), content_type="application/json")

    return web.get(api.path, serve, allow_head=False)
