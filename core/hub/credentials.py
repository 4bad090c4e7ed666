"""/v1/credentials: a user's own, and on the operator's socket the operator's. No answer has a value."""

import base64
from collections.abc import Awaitable, Callable
from typing import Annotated, NamedTuple, Protocol

import msgspec
from aiohttp import web

from core.egress.credential_messages import CredentialInfo, KeyRotated
from core.hub.bodies import as_expected, as_json, read_body
from core.hub.errors import invalid
from core.vault.handle import UserHandle
from core.vault.terms import CredentialTerms
from jail.host.profile import CREDENTIALS_DIR

OwnerOf = Callable[[web.Request], Awaitable[UserHandle | None]]


class NewValue(NamedTuple):
    """A value on its way: in the clear, or sealed to the vault (core.vault.box)."""

    value: str
    sealed: bytes

    def __repr__(self) -> str:
        return "NewValue()"


class Keeper(Protocol):
    """Who keeps credentials; an empty owner is the operator. Every method may raise AdministrationError."""

    async def list(self, owner: str) -> list[CredentialInfo]:
        """An owner's, without values."""
        ...

    async def set(self, owner: str, name: str, terms: CredentialTerms, new: NewValue) -> int:
        """Keep one, or another in its place; its version."""
        ...

    async def delete(self, owner: str, name: str) -> None:
        """Forget one."""
        ...

    async def box_key(self) -> bytes:
        """The X25519 public key that values may be sealed to."""
        ...

    async def rotate(self) -> KeyRotated:
        """Change the master key."""
        ...


class CredentialBody(CredentialTerms, frozen=True, forbid_unknown_fields=True):
    """What PUT takes: the terms, and the value in the clear or sealed (base64)."""

    value: Annotated[str, msgspec.Meta(max_length=8_192)] = ""
    sealed: Annotated[str, msgspec.Meta(max_length=16_384)] = ""

    def __repr__(self) -> str:
        return "CredentialBody()"


class CredentialApi:
    """``GET /v1/credentials``, ``PUT|DELETE /v1/credentials/NAME``, ``GET /v1/credential-key``.

    Args:
        owner: whose a request is about, None for the operator; HubError where it may not.
        mounts: names of a user's credentials that lie in their jail as files.
    """

    def __init__(
        self, keeper: Keeper, owner: OwnerOf, mounts: Callable[[str], tuple[str, ...]] = lambda _: ()
    ) -> None:
        self._keeper, self._owner, self._mounts = keeper, owner, mounts

    def routes(self) -> list[web.RouteDef]:
        """Where they answer."""
        return [
            web.get("/v1/credentials", self.all, allow_head=False),
            web.put("/v1/credentials/{name}", self.put),
            web.delete("/v1/credentials/{name}", self.delete),
            web.get("/v1/credential-key", self.key, allow_head=False),
        ]

    async def all(self, request: web.Request) -> web.Response:
        """Every credential of the owner's, never its value."""
        owner = _name(await self._owner(request))
        mounts = self._mounts(owner)
        rows = [_row(one, one.name in mounts) for one in await self._keeper.list(owner)]
        return as_json({"object": "list", "data": rows})

    async def put(self, request: web.Request) -> web.Response:
        """Keep a credential: its terms, and ``value`` or ``sealed`` (base64)."""
        owner = await self._owner(request)
        name, raw = request.match_info["name"], await read_body(request, owner)
        body = as_expected(raw, CredentialBody)
        try:
            sealed = base64.b64decode(body.sealed, validate=True)
        except ValueError as error:  # for what is none, and for what is no ASCII either
            raise invalid(f"the body is not what is expected: {error}", "invalid_request") from None
        if bool(body.value) == bool(body.sealed):
            raise invalid("send either `value` or `sealed`", "invalid_request", "value")
        fields = {field: getattr(body, field) for field in CredentialTerms.__struct_fields__}
        terms = CredentialTerms(**fields)
        version = await self._keeper.set(_name(owner), name, terms, NewValue(body.value, sealed))
        return as_json(
            {"object": "credential", "name": name, "version": version}, 201 if version == 1 else 200
        )

    async def delete(self, request: web.Request) -> web.Response:
        """Forget a credential."""
        owner, name = await self._owner(request), request.match_info["name"]
        await self._keeper.delete(_name(owner), name)
        return as_json({"object": "credential", "name": name, "deleted": True})

    async def key(self, request: web.Request) -> web.Response:
        """What values may be sealed to, so that only the egress process reads them."""
        await self._owner(request)
        return as_json({"key": base64.b64encode(await self._keeper.box_key()).decode()})


class KeyApi:
    """``POST /v1/key/rotate`` on the operator's socket."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    def routes(self) -> list[web.RouteDef]:
        """Where it answers."""
        return [web.post("/v1/key/rotate", self.rotate)]

    async def rotate(self, _: web.Request) -> web.Response:
        """Change the master key, and wrap everything anew."""
        done = await self._keeper.rotate()
        return as_json({"users": done.users, "credentials": done.credentials})


async def the_operator(_: web.Request) -> None:
    """The owner of what is set on the operator's socket, which the kernel guards."""


def _name(owner: UserHandle | None) -> str:
    return "" if owner is None else owner.user


def _row(one: CredentialInfo, named: bool) -> dict[str, object]:
    mounted = named and one.terms.kind != "oauth2"
    terms = {field: getattr(one.terms, field) for field in CredentialTerms.__struct_fields__}
    grant = msgspec.to_builtins(one.grant) if one.grant else None
    return {
        "object": "credential", "name": one.name, **terms, "version": one.version,
        "created_s": one.created_s, "used_s": one.used_s, "grant": grant,
        "scope": "mount" if mounted else "broker",
        "mounted_at": f"{CREDENTIALS_DIR}/{one.name}" if mounted else None,
    }  # fmt: skip
