"""What an administrator may do: each act in an order that a crash in the middle leaves harmless.

A user exists once core's table has them, which comes last when adding and first when deleting:
what an interrupted act leaves behind belongs to nobody, and doing the act again finishes it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

import msgspec
import structlog

from core.egress import messages as vault
from core.egress_link import EgressLink
from core.errors import CoreError
from core.hub.admin import AdministrationError, MadeToken
from core.pool.actor import EvictUser, KillUser, Pool, ReleaseUser
from core.promise import promised
from core.refusals import answered, known_user
from core.sessions import Storage
from core.spawner_link import Host
from core.turns import Turns
from core.users import User, UserExists, UserNameError, Users
from core.vault.standing import Standings

_LEAVE_S = 15.0
_REMOVE_TIMEOUT_S = 30.0


class CoreAdministration:
    """Implements core.hub.admin.Administration.

    Args:
        standings: ended for a user who is disabled or deleted.
        apart: whether users have host uids of their own (the spawner is root).
        cut_off: ends a user's running turns, and their connections that watch some.
        recheck_tokens: ends connections whose token is none any more.
        pool: the jails.
        forget_home: told of a user whose home is gone.
    """

    def __init__(
        self,
        *,
        users: Users,
        standings: Standings,
        link: EgressLink,
        host: Host,
        turns: Turns,
        storage: Storage,
        apart: bool,
        cut_off: Callable[[str], int],
        recheck_tokens: Callable[[], Awaitable[None]],
        pool: Pool,
        forget_home: Callable[[str], None],
    ) -> None:
        self._users = users
        self._standings = standings
        self._link = link
        self._host = host
        self._turns = turns
        self._storage = storage
        self._apart = apart
        self._cut_off = cut_off
        self._recheck_tokens = recheck_tokens
        self._pool = pool
        self._forget_home = forget_home
        self._log = structlog.get_logger()
        self._one_at_a_time = asyncio.Lock()

    async def add_user(self, name: str) -> User:
        """Host uid and row, directories, key; a half-made user is finished by adding it again."""
        async with self._one_at_a_time:
            try:
                user = await asyncio.to_thread(self._users.add, name)
            except UserExists:
                # made before, perhaps only half: make sure of the rest, then say so
                await self._finish_user(await asyncio.to_thread(self._users.get, name))
                raise AdministrationError("exists", f"there is a user {name} already") from None
            except UserNameError as error:
                raise AdministrationError("invalid", str(error)) from None
            except CoreError as error:
                raise AdministrationError("unavailable", str(error)) from None
            await self._finish_user(user)
            self._log.info("user_added", user=name)
            return user

    async def _finish_user(self, user: User) -> None:
        await answered(self._host.prepare_user(user.name, self._uid(user)))
        await answered(self._link.ask(lambda i: vault.AddUser(i, user.name)))

    async def list_users(self) -> list[User]:
        """All users by name."""
        return await asyncio.to_thread(self._users.list)

    async def set_user_disabled(self, name: str, disabled: bool) -> None:
        """Tokens first: from then on nothing new starts; then what runs ends."""
        await known_user(self._users, name)
        await answered(self._link.ask(lambda i: vault.SetUserDisabled(i, name, disabled)))
        await asyncio.to_thread(self._users.set_disabled, name, disabled)
        if disabled:
            self._standings.end(name)
            self._cut_off(name)
        self._log.info("user_disabled" if disabled else "user_enabled", user=name)

    async def delete_user(self, name: str) -> None:
        """Tokens and key first (nothing opens any more), then the jail, files, and the row."""
        async with self._one_at_a_time:
            user = await known_user(self._users, name)
            await answered(self._link.ask(lambda i: vault.RemoveUser(i, name)))
            # requests that were let in before, and have not begun a turn, are not to begin one
            self._standings.end(name)
            self._cut_off(name)
            if not await self._turns.leave(name, _LEAVE_S):
                raise AdministrationError("busy", f"{name}'s jail does not end: try again")
            await answered(self._host.remove_user(name, self._uid(user)))
            self._forget_home(name)
            await self._remove_sessions(name)
            await asyncio.to_thread(self._users.delete, name)
            self._log.info("user_deleted", user=name)

    async def _remove_sessions(self, name: str) -> None:
        def ask(settle: Callable[[CoreError | None], None]) -> None:
            self._storage.remove(name, lambda _: settle(None), settle)

        error = await answered(promised(ask, _REMOVE_TIMEOUT_S, "the session store"))
        if error is not None:
            raise AdministrationError("unavailable", str(error))

    async def new_token(self, user: str, label: str) -> MadeToken:
        """Mint a token for a user."""
        await known_user(self._users, user)
        made = await answered(self._link.ask(lambda i: vault.NewToken(i, user, label)))
        self._log.info("token_made", user=user, token_id=made.token_id)
        return MadeToken(made.token_id, made.token)

    async def list_tokens(self, user: str | None) -> list[vault.TokenInfo]:
        """Tokens of one user, or of all."""
        if user:
            await known_user(self._users, user)
        found = await answered(self._link.ask(lambda i: vault.ListTokens(i, user or "")))
        return list(found.tokens)

    async def new_admin_token(self, label: str) -> MadeToken:
        """Mint an administrator's token."""
        made = await answered(self._link.ask(lambda i: vault.NewAdminToken(i, label)))
        self._log.info("admin_token_made", token_id=made.token_id)
        return MadeToken(made.token_id, made.token)

    async def list_admin_tokens(self) -> list[vault.TokenInfo]:
        """Administrators' tokens that are not revoked."""
        found = await answered(self._link.ask(vault.ListAdminTokens))
        return list(found.tokens)

    async def revoke_token(self, token_id: str) -> None:
        """From the next request on it is no token, and connections that were opened with it end."""
        await answered(self._link.ask(lambda i: vault.RevokeToken(i, token_id)), "not_found")
        await self._recheck_tokens()
        self._log.info("token_revoked", token_id=token_id)

    async def test_provider(self, name: str, model: str) -> dict[str, Any]:
        """What egress found; see core.egress.messages.ProviderTried."""
        listed = await answered(self._link.ask(vault.ListProviders))
        if name not in {provider.name for provider in listed.providers}:
            raise AdministrationError(
                "not_found",
                f"the running server has no provider {name[:96]!r} to test: after a change of the"
                " configuration send the server SIGHUP, or restart it",
            )
        found = await answered(self._link.ask(lambda i: vault.TryProvider(i, name, model)))
        values: dict[str, Any] = msgspec.to_builtins(found)
        return {key: value for key, value in values.items() if key not in ("type", "id")}

    async def status(self) -> dict[str, Any]:
        """Users' jails, and whether egress is there."""
        found = await answered(self._pool.describe())
        return {
            "egress": "up" if self._link.up else "down",
            "jails": [asdict(jail) for jail in found.jails],
        }

    async def evict_jail(self, user: str) -> None:
        """Have a user's jail go as soon as nothing runs in it."""
        await self._on_jail(user, EvictUser(user))

    async def kill_jail(self, user: str) -> None:
        """End a user's jail now; its turns fail."""
        await self._on_jail(user, KillUser(user))

    async def release_jail(self, user: str) -> None:
        """Start a user's jail again that is held for dying at once."""
        if not await answered(self._pool.ask(ReleaseUser(user))):
            raise AdministrationError("not_found", f"{user}'s jail is not held")
        self._log.info("jail_released", user=user)

    async def drain_pool(self, on: bool) -> None:
        """Take no new jail and let all go as they become idle; or end that."""
        self._pool.drain(on)

    async def _on_jail(self, user: str, act: EvictUser | KillUser) -> None:
        if not await answered(self._pool.ask(act)):
            raise AdministrationError("not_found", f"{user} has no jail now")
        self._log.info("jail_act", user=user, act=type(act).__name__)

    def _uid(self, user: User) -> int:
        return user.host_uid if self._apart else 0
