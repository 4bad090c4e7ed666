"""The command line's API, on a Unix socket: users, tokens, status. The kernel says who asks.

Only root and core's own uid may; what carries it out is injected as :class:`Administration`.
"""

import os
import socket
import struct
from typing import Annotated, Any, Literal, Protocol, TypeVar

import msgspec
from aiohttp import web

from core.egress.messages import TokenInfo
from core.errors import CoreError
from core.hub.chat import read_body
from core.hub.errors import HubError, invalid
from core.users import User

_UCRED = struct.Struct("3i")  # pid, uid, gid: unix(7), SO_PEERCRED
_STATUS = {"not_found": 404, "exists": 409, "invalid": 400, "busy": 409, "unavailable": 503}

_T = TypeVar("_T", bound=msgspec.Struct)


class AdministrationError(CoreError):
    """Not done; the message says why and what to do."""

    def __init__(
        self, code: Literal["not_found", "exists", "invalid", "busy", "unavailable"], message: str
    ) -> None:
        super().__init__(message)
        self.code = code


class MadeToken(msgspec.Struct, frozen=True):
    """A new token; this is the only time that it is seen."""

    token_id: str
    token: str


class Administration(Protocol):
    """What the command line may do. Every method may raise AdministrationError."""

    async def add_user(self, name: str) -> User:
        """Make a user, their key and their directories."""
        ...

    async def list_users(self) -> list[User]:
        """All users by name."""
        ...

    async def set_user_disabled(self, name: str, disabled: bool) -> None:
        """Tokens of a disabled user don't verify, running turns end."""
        ...

    async def delete_user(self, name: str) -> None:
        """Delete a user: tokens, key, sessions, directories."""
        ...

    async def new_token(self, user: str, label: str) -> MadeToken:
        """Mint a token for a user."""
        ...

    async def list_tokens(self, user: str | None) -> list[TokenInfo]:
        """Tokens of one user, or of all."""
        ...

    async def revoke_token(self, token_id: str) -> None:
        """A revoked token doesn't verify any more."""
        ...

    async def test_provider(self, name: str, model: str) -> dict[str, Any]:
        """``models``, ``models_error``, ``model``, ``chat_error``, ``answer_s``; no error: empty."""
        ...

    async def status(self) -> dict[str, Any]:
        """What runs, for people and for monitoring; builtin objects only."""
        ...


class _Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class _NewUser(_Body, frozen=True):
    name: Annotated[str, msgspec.Meta(max_length=300)]


class _Test(_Body, frozen=True):
    model: Annotated[str, msgspec.Meta(max_length=128)] = ""


class _NewToken(_Body, frozen=True):
    label: Annotated[str, msgspec.Meta(max_length=64)] = ""


class AdminApi:
    """The handlers.

    ``GET /v1/status``, ``GET|POST /v1/users``, ``DELETE /v1/users/NAME``,
    ``POST /v1/users/NAME/disable|enable``, ``GET|POST /v1/users/NAME/tokens``, ``GET /v1/tokens``,
    ``DELETE /v1/tokens/ID``, ``POST /v1/providers/NAME/test``.
    """

    def __init__(self, administration: Administration) -> None:
        self._do = administration

    def routes(self) -> list[web.RouteDef]:
        """What to add to the application."""
        return [
            web.get("/v1/status", self._status),
            web.get("/v1/users", self._list_users),
            web.post("/v1/users", self._add_user),
            web.delete("/v1/users/{name}", self._delete_user),
            web.post("/v1/users/{name}/disable", self._disable),
            web.post("/v1/users/{name}/enable", self._enable),
            web.get("/v1/users/{name}/tokens", self._list_tokens),
            web.post("/v1/users/{name}/tokens", self._new_token),
            web.get("/v1/tokens", self._list_tokens),
            web.delete("/v1/tokens/{token_id}", self._revoke_token),
            web.post("/v1/providers/{name}/test", self._test_provider),
        ]

    async def _status(self, _: web.Request) -> web.Response:
        return _json(await self._do.status())

    async def _list_users(self, _: web.Request) -> web.Response:
        return _json({"users": [user._asdict() for user in await self._do.list_users()]})

    async def _add_user(self, request: web.Request) -> web.Response:
        body = await _parse(request, _NewUser)
        return _json((await self._do.add_user(body.name))._asdict(), 201)

    async def _delete_user(self, request: web.Request) -> web.Response:
        await self._do.delete_user(request.match_info["name"])
        return _json({"deleted": request.match_info["name"]})

    async def _disable(self, request: web.Request) -> web.Response:
        await self._do.set_user_disabled(request.match_info["name"], True)
        return _json({"disabled": request.match_info["name"]})

    async def _enable(self, request: web.Request) -> web.Response:
        await self._do.set_user_disabled(request.match_info["name"], False)
        return _json({"enabled": request.match_info["name"]})

    async def _list_tokens(self, request: web.Request) -> web.Response:
        return _json({"tokens": await self._do.list_tokens(request.match_info.get("name"))})

    async def _new_token(self, request: web.Request) -> web.Response:
        body = await _parse(request, _NewToken)
        return _json(await self._do.new_token(request.match_info["name"], body.label), 201)

    async def _revoke_token(self, request: web.Request) -> web.Response:
        await self._do.revoke_token(request.match_info["token_id"])
        return _json({"revoked": request.match_info["token_id"]})

    async def _test_provider(self, request: web.Request) -> web.Response:
        body = await _parse(request, _Test)
        return _json(await self._do.test_provider(request.match_info["name"], body.model))


def from_administration(error: AdministrationError) -> HubError:
    """An AdministrationError as an answer."""
    return HubError(_STATUS[error.code], str(error), error.code)


def check_peer(request: web.Request) -> None:
    """HubError 403 unless root or core's own uid is at the other end of the Unix socket."""
    sock = request.transport.get_extra_info("socket") if request.transport else None
    uid = _peer_uid(sock) if sock is not None and sock.family == socket.AF_UNIX else None
    if uid is None or uid not in (0, os.geteuid()):
        raise HubError(403, "only root and the server's own user may do this", "forbidden")


def _peer_uid(sock: Any) -> int:
    found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return int(_UCRED.unpack(found)[1])


async def _parse(request: web.Request, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(await read_body(request) or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise invalid(f"the body is not what is expected: {error}", "invalid_request") from None


def _json(body: Any, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")
