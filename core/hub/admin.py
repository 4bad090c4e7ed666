"""What administrators may do over HTTP: on the Unix socket below ``/v1``, on TCP below ``/admin/v1``.

Who may is decided before (:mod:`core.hub.admin_access`); what carries it out is injected as
:class:`Administration`.
"""

from typing import Any, Literal, Protocol, TypeVar

import msgspec
from aiohttp import web

from core.egress.messages import TokenInfo
from core.errors import CoreError
from core.hub.admin_requests import NewToken, NewUser, TrialAsked
from core.hub.bodies import as_expected, as_json, read_body
from core.hub.errors import HubError
from core.hub.insight import Insight
from core.users import User

_STATUS = {"not_found": 404, "exists": 409, "invalid": 400, "busy": 409, "unavailable": 503}

_RETRY_AFTER_S = 2  # what is being restarted is back by then

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

    async def new_admin_token(self, label: str) -> MadeToken:
        """Mint an administrator's token."""
        ...

    async def list_admin_tokens(self) -> list[TokenInfo]:
        """Administrators' tokens."""
        ...

    async def revoke_token(self, token_id: str) -> None:
        """A revoked token doesn't verify any more."""
        ...

    async def test_provider(self, name: str, model: str) -> dict[str, Any]:
        """``models``, ``models_error``, ``model``, ``chat_error``, ``answer_s``; no error: empty."""
        ...

    async def evict_jail(self, user: str) -> None:
        """Have a user's jail go as soon as nothing runs in it."""
        ...

    async def kill_jail(self, user: str) -> None:
        """End a user's jail now; its turns fail."""
        ...

    async def release_jail(self, user: str) -> None:
        """Start a user's jail again that is held for dying at once."""
        ...

    async def drain_pool(self, on: bool) -> None:
        """Take no new jail and let all go as they become idle; or end that."""
        ...

    async def status(self) -> dict[str, Any]:
        """What runs, for people and for monitoring; builtin objects only."""
        ...


class AdminApi:
    """The handlers.

    ``GET /status|health|pool|config|sessions|providers``, ``GET|POST /users``,
    ``DELETE /users/NAME``, ``POST /users/NAME/disable|enable``, ``GET|POST /users/NAME/tokens``,
    ``POST /pool/drain|open``, ``POST /pool/NAME/evict|kill|release``,
    ``GET /users/NAME/sessions``, ``GET /tokens``, ``GET|POST /admin-tokens``,
    ``DELETE /tokens/ID``, ``POST /providers/NAME/test``; each below a prefix.
    """

    def __init__(self, administration: Administration, insight: Insight) -> None:
        self._do = administration
        self._see = insight

    def routes(self, prefix: str) -> list[web.RouteDef]:
        """What to add to the application."""
        return [
            web.get(f"{prefix}/status", self._status, allow_head=False),
            web.get(f"{prefix}/health", self._health, allow_head=False),
            web.get(f"{prefix}/pool", self._pool, allow_head=False),
            web.post(f"{prefix}/pool/drain", self._drain),
            web.post(f"{prefix}/pool/open", self._open),
            web.post(f"{prefix}/pool/{{name}}/evict", self._evict),
            web.post(f"{prefix}/pool/{{name}}/kill", self._kill),
            web.post(f"{prefix}/pool/{{name}}/release", self._release),
            web.get(f"{prefix}/config", self._config, allow_head=False),
            web.get(f"{prefix}/users", self._list_users, allow_head=False),
            web.post(f"{prefix}/users", self._add_user),
            web.delete(f"{prefix}/users/{{name}}", self._delete_user),
            web.post(f"{prefix}/users/{{name}}/disable", self._disable),
            web.post(f"{prefix}/users/{{name}}/enable", self._enable),
            web.get(f"{prefix}/users/{{name}}/tokens", self._list_tokens, allow_head=False),
            web.post(f"{prefix}/users/{{name}}/tokens", self._new_token),
            web.get(f"{prefix}/users/{{name}}/sessions", self._sizes_of, allow_head=False),
            web.get(f"{prefix}/sessions", self._sizes, allow_head=False),
            web.get(f"{prefix}/tokens", self._list_tokens, allow_head=False),
            web.delete(f"{prefix}/tokens/{{token_id}}", self._revoke_token),
            web.get(f"{prefix}/admin-tokens", self._list_admin_tokens, allow_head=False),
            web.post(f"{prefix}/admin-tokens", self._new_admin_token),
            web.get(f"{prefix}/providers", self._list_providers, allow_head=False),
            web.post(f"{prefix}/providers/{{name}}/test", self._test_provider),
        ]

    async def _health(self, _: web.Request) -> web.Response:
        return as_json(await self._see.health())

    async def _pool(self, _: web.Request) -> web.Response:
        return as_json(await self._see.pool())

    async def _drain(self, _: web.Request) -> web.Response:
        await self._do.drain_pool(True)
        return as_json({"draining": True})

    async def _open(self, _: web.Request) -> web.Response:
        await self._do.drain_pool(False)
        return as_json({"draining": False})

    async def _evict(self, request: web.Request) -> web.Response:
        await self._do.evict_jail(request.match_info["name"])
        return as_json({"evicted": request.match_info["name"]})

    async def _kill(self, request: web.Request) -> web.Response:
        await self._do.kill_jail(request.match_info["name"])
        return as_json({"killed": request.match_info["name"]})

    async def _release(self, request: web.Request) -> web.Response:
        await self._do.release_jail(request.match_info["name"])
        return as_json({"released": request.match_info["name"]})

    async def _config(self, _: web.Request) -> web.Response:
        return as_json(await self._see.configuration())

    async def _sizes_of(self, request: web.Request) -> web.Response:
        return as_json(await self._see.sizes_of(request.match_info["name"]))

    async def _sizes(self, _: web.Request) -> web.Response:
        return as_json({"users": await self._see.sizes()})

    async def _list_providers(self, _: web.Request) -> web.Response:
        return as_json({"providers": await self._see.providers()})

    async def _list_admin_tokens(self, _: web.Request) -> web.Response:
        return as_json({"tokens": await self._do.list_admin_tokens()})

    async def _new_admin_token(self, request: web.Request) -> web.Response:
        body = await _parse(request, NewToken)
        return as_json(await self._do.new_admin_token(body.label), 201)

    async def _status(self, _: web.Request) -> web.Response:
        return as_json(await self._do.status())

    async def _list_users(self, _: web.Request) -> web.Response:
        return as_json({"users": [user._asdict() for user in await self._do.list_users()]})

    async def _add_user(self, request: web.Request) -> web.Response:
        body = await _parse(request, NewUser)
        return as_json((await self._do.add_user(body.name))._asdict(), 201)

    async def _delete_user(self, request: web.Request) -> web.Response:
        await self._do.delete_user(request.match_info["name"])
        return as_json({"deleted": request.match_info["name"]})

    async def _disable(self, request: web.Request) -> web.Response:
        await self._do.set_user_disabled(request.match_info["name"], True)
        return as_json({"disabled": request.match_info["name"]})

    async def _enable(self, request: web.Request) -> web.Response:
        await self._do.set_user_disabled(request.match_info["name"], False)
        return as_json({"enabled": request.match_info["name"]})

    async def _list_tokens(self, request: web.Request) -> web.Response:
        return as_json({"tokens": await self._do.list_tokens(request.match_info.get("name"))})

    async def _new_token(self, request: web.Request) -> web.Response:
        body = await _parse(request, NewToken)
        return as_json(await self._do.new_token(request.match_info["name"], body.label), 201)

    async def _revoke_token(self, request: web.Request) -> web.Response:
        await self._do.revoke_token(request.match_info["token_id"])
        return as_json({"revoked": request.match_info["token_id"]})

    async def _test_provider(self, request: web.Request) -> web.Response:
        body = await _parse(request, TrialAsked)
        return as_json(await self._do.test_provider(request.match_info["name"], body.model))


def from_administration(error: AdministrationError) -> HubError:
    """An AdministrationError as an answer."""
    wait_s = _RETRY_AFTER_S if error.code == "unavailable" else None
    return HubError(_STATUS[error.code], str(error), error.code, retry_after_s=wait_s)


async def _parse(request: web.Request, kind: type[_T]) -> _T:
    return as_expected(await read_body(request, None) or b"{}", kind)
