"""The vault as the rest of the egress process asks it: from the event loop, answered from its thread."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pykka

from actors.base import tell
from core.errors import CoreError
from core.oauth.grant import Grant
from core.vault.actor import KeepGrant, Kept, Opened, OpenOne, VaultActor
from core.vault.cabinet import Credential
from core.vault.terms import CredentialTerms

OpenCredential = Callable[[str, str], Awaitable[Credential | None]]
"""An owner and a name to the open credential, None where there is none; raises VaultUnavailable."""
_TIMEOUT_S = 10.0
_MAX_WAITING = 1_024
_T = TypeVar("_T")


class VaultUnavailable(CoreError):
    """A credential cannot be opened at present; the message says why."""


class VaultAccess:
    """Opens credentials for requests that run now, and keeps grants. On the loop's thread.

    Every method raises VaultUnavailable.
    """

    def __init__(self, vault: "pykka.ActorRef[VaultActor]") -> None:
        self._vault = vault
        self._waiting = 0

    async def open(self, owner: str, name: str) -> Credential | None:
        """See OpenCredential. Of a grant, as it was kept; core.oauth.renewing opens it fresh."""
        opened: Opened = await self._ask(lambda settle: OpenOne(owner, name, settle))
        if isinstance(opened, str):
            raise VaultUnavailable(opened)
        return opened

    async def keep_grant(
        self, owner: str, name: str, place: CredentialTerms | int, grant: Grant
    ) -> int | None:
        """Keep a new grant under its terms, or one in the place of a version; its version.

        None where the credential of that version is gone, or another by now.
        """
        kept: Kept = await self._ask(lambda settle: KeepGrant(owner, name, grant, place, settle))
        if isinstance(kept, str):
            raise VaultUnavailable(kept)
        return kept

    async def _ask(self, make: Callable[[Callable[[_T], None]], Any]) -> _T:
        if self._waiting >= _MAX_WAITING:
            raise VaultUnavailable("the vault is overloaded; try again in a second")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[_T] = loop.create_future()

        def settle(value: _T) -> None:
            if not answer.done():
                answer.set_result(value)

        self._waiting += 1
        try:
            if not tell(self._vault, make(lambda value: _pass(loop, settle, value))):
                raise VaultUnavailable("the egress process is ending; try again")
            async with asyncio.timeout(_TIMEOUT_S):
                return await answer
        except TimeoutError:
            raise VaultUnavailable(f"the vault did not answer in {_TIMEOUT_S:g} s; try again") from None
        finally:
            self._waiting -= 1


def _pass(loop: asyncio.AbstractEventLoop, settle: Callable[[_T], None], value: _T) -> None:
    """On the vault's thread; the loop may have ended meanwhile, and then nobody waits."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(settle, value)
