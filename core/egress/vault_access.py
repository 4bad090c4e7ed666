"""The vault as the rest of the egress process asks it: from the event loop, answered from its thread."""

import asyncio
from collections.abc import Awaitable, Callable

import pykka

from actors.base import tell
from core.errors import CoreError
from core.vault.actor import Opened, OpenOne, VaultActor
from core.vault.cabinet import Credential

OpenCredential = Callable[[str, str], Awaitable[Credential | None]]
"""An owner and a name to the open credential, None where there is none; raises VaultUnavailable."""
_TIMEOUT_S = 10.0
_MAX_WAITING = 1_024


class VaultUnavailable(CoreError):
    """A credential cannot be opened at present; the message says why."""


class VaultAccess:
    """Opens credentials for requests that run now. On the loop's thread."""

    def __init__(self, vault: "pykka.ActorRef[VaultActor]") -> None:
        self._vault = vault
        self._waiting = 0

    async def open(self, owner: str, name: str) -> Credential | None:
        """See OpenCredential."""
        if self._waiting >= _MAX_WAITING:
            raise VaultUnavailable("the vault is overloaded; try again in a second")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Opened] = loop.create_future()

        def settle(opened: Opened) -> None:
            if not answer.done():
                answer.set_result(opened)

        self._waiting += 1
        try:
            if not tell(self._vault, OpenOne(owner, name, lambda o: _pass(loop, settle, o))):
                raise VaultUnavailable("the egress process is ending; try again")
            async with asyncio.timeout(_TIMEOUT_S):
                opened = await answer
        except TimeoutError:
            raise VaultUnavailable(f"the vault did not answer in {_TIMEOUT_S:g} s; try again") from None
        finally:
            self._waiting -= 1
        if isinstance(opened, str):
            raise VaultUnavailable(opened)
        return opened


def _pass(loop: asyncio.AbstractEventLoop, settle: Callable[[Opened], None], opened: Opened) -> None:
    """On the vault's thread; the loop may have ended meanwhile, and then nobody waits."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(settle, opened)
