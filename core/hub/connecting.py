"""/v1/credentials/NAME/connect and /v1/oauth: accounts elsewhere, connected by OAuth 2.

The callback is the one address that a browser opens without a token: all that counts is the state in
its query, which is random, its user's, and good once. It says whose credential it would be and asks,
so that a link which somebody else sent is not followed to its end unseen (RFC 8628, 5.4).
"""

from collections.abc import Awaitable, Callable
from html import escape
from typing import Annotated, Protocol

import msgspec
from aiohttp import web

from core.egress.oauth_messages import ConnectBegun, ConnectSeen, ConnectTold, Flow, OAuthInfo
from core.hub.admin import AdministrationError
from core.hub.bodies import as_expected, as_json, read_body
from core.hub.errors import HubError
from core.oauth.section import CALLBACK
from core.vault.handle import UserHandle

_MAX_STATE, _MAX_CODE, _MAX_ERROR = 256, 8_192, 128
_CSP = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'"
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Certosa</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>body{{font:16px/1.5 sans-serif;max-width:36em;margin:4em auto;padding:0 1em}}</style></head>
<body><h1>{title}</h1>{body}</body></html>
"""


class ConnectBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"provider": "with"}):
    """What to connect with, how, and where the token may go; see core.egress.oauth_messages."""

    provider: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    flow: Flow | None = None
    host: Annotated[str, msgspec.Meta(max_length=253)] = ""
    path: Annotated[str, msgspec.Meta(max_length=1_024)] = "/"
    scopes: Annotated[
        tuple[Annotated[str, msgspec.Meta(min_length=1, max_length=256)], ...], msgspec.Meta(max_length=64)
    ] = ()


class Connector(Protocol):
    """Who connects. Every method may raise AdministrationError."""

    async def begin(self, owner: str, name: str, body: ConnectBody) -> ConnectBegun:
        """Begin to connect a credential."""
        ...

    async def told(self, owner: str, name: str) -> ConnectTold:
        """How far it is."""
        ...

    async def look(self, provider: str, state: str) -> ConnectSeen:
        """Whose a state is."""
        ...

    async def finish(self, provider: str, state: str, code: str, error: str) -> None:
        """A browser came back."""
        ...

    async def providers(self, owner: str) -> tuple[OAuthInfo, ...]:
        """What a user may connect with."""
        ...


class ConnectApi:
    """``POST|GET /v1/credentials/NAME/connect``, ``GET /v1/oauth``; and the callback.

    Args:
        owner: whose a request is about; HubError where it may not.
    """

    def __init__(self, connector: Connector, owner: Callable[[web.Request], Awaitable[UserHandle]]) -> None:
        self._connector = connector
        self._owner = owner

    def routes(self) -> list[web.RouteDef]:
        """Where they answer."""
        return [
            web.post("/v1/credentials/{name}/connect", self.begin),
            web.get("/v1/credentials/{name}/connect", self.told, allow_head=False),
            web.get("/v1/oauth", self.providers, allow_head=False),
            web.get(CALLBACK, self.come_back, allow_head=False),
            web.post(CALLBACK, self.agreed),
        ]

    async def begin(self, request: web.Request) -> web.Response:
        """Begin to connect a credential: where its owner is to go."""
        owner = await self._owner(request)
        body = as_expected(await read_body(request, owner), ConnectBody)
        begun = await self._connector.begin(owner.user, request.match_info["name"], body)
        return as_json(
            {
                "object": "credential.connect", "name": request.match_info["name"], "flow": begun.flow,
                "url": begun.url, "user_code": begun.user_code, "expires_in_s": begun.expires_in_s,
            },
            201,
        )  # fmt: skip

    async def told(self, request: web.Request) -> web.Response:
        """How far connecting a credential is."""
        owner, name = await self._owner(request), request.match_info["name"]
        told = await self._connector.told(owner.user, name)
        return as_json({
            "object": "credential.connect", "name": name, "with": told.provider, "status": told.status,
            "message": told.message,
        })  # fmt: skip

    async def providers(self, request: web.Request) -> web.Response:
        """What the user may connect with."""
        found = await self._connector.providers((await self._owner(request)).user)
        return as_json({"object": "list", "data": [msgspec.to_builtins(one) for one in found]})

    async def come_back(self, request: web.Request) -> web.Response:
        """A browser comes back: say whose credential it is, and ask."""
        provider, state, code, error = _came_with(request)
        try:
            if error or not code:
                await self._connector.finish(provider, state, "", error or "none")
                raise AdministrationError("invalid", "nothing was connected")
            seen = await self._connector.look(provider, state)
        except AdministrationError as refusal:
            return _refused(refusal)
        # the form's address is this page's own, so nothing of its query stands in the page
        return _page(
            f"Connect {escape(provider)}?",
            f"<p>This lets the agent of the user <b>{escape(seen.owner)}</b> on this server act as you at"
            f" {escape(provider)}; it is kept as the credential <b>{escape(seen.name)}</b>.</p><p>If you did"
            " not begin this yourself, close this page.</p>"
            '<form method="post"><button>Connect</button></form>',
        )

    async def agreed(self, request: web.Request) -> web.Response:
        """The person at the browser agreed."""
        provider, state, code, _ = _came_with(request)
        try:
            await self._connector.finish(provider, state, code, "")
        except AdministrationError as refusal:
            return _refused(refusal)
        return _page("Connected", "<p>It is done; this page may be closed.</p>")


def _came_with(request: web.Request) -> tuple[str, str, str, str]:
    """Provider, state, code and error; HubError 400 for what no authorization server sends."""
    values = []
    for name, most in (("state", _MAX_STATE), ("code", _MAX_CODE), ("error", _MAX_ERROR)):
        given = request.query.getall(name, [])
        if len(given) > 1 or len(value := "".join(given)) > most or not (value.isascii()):
            raise HubError(400, f"`{name}` is not what an authorization server sends", "invalid_request")
        values.append(value)
    if not values[0]:
        raise HubError(400, "`state` is missing: open this address from the server you come from", "invalid")
    return request.match_info["provider"], values[0], values[1], values[2]


def _refused(refusal: AdministrationError) -> web.Response:
    status = 503 if refusal.code == "unavailable" else 400
    return _page("Not connected", f"<p>{escape(str(refusal))}</p>", status)


def _page(title: str, body: str, status: int = 200) -> web.Response:
    answer = web.Response(text=_PAGE.format(title=title, body=body), status=status, content_type="text/html")
    answer.headers["Content-Security-Policy"] = _CSP
    return answer
