"""Users' own rules, asked of the vault for each request: one that was removed counts no more."""

import asyncio
from functools import partial
from typing import Any

import pykka

from actors.base import tell
from core.config import EgressRule
from core.egress.rule_messages import EgressRules, ListEgressRules
from core.egress.vault_access import VaultUnavailable
from core.vault.actor import Ask, VaultActor

_TIMEOUT_S = 10.0
_MAX_WAITING = 1_024


class OwnRules:
    """On the loop's thread."""

    def __init__(self, vault: "pykka.ActorRef[VaultActor]") -> None:
        self._vault = vault
        self._waiting = 0

    async def of(self, user: str) -> tuple[EgressRule, ...]:
        """A user's own rules. Raises VaultUnavailable: then nothing may go out."""
        if self._waiting >= _MAX_WAITING:
            raise VaultUnavailable("the vault is overloaded; try again in a second")
        loop = asyncio.get_running_loop()
        came: asyncio.Future[Any] = loop.create_future()
        self._waiting += 1
        try:
            if not tell(self._vault, Ask(ListEgressRules(0, user), partial(_pass, loop, came))):
                raise VaultUnavailable("the egress process is ending; try again")
            async with asyncio.timeout(_TIMEOUT_S):
                answer = await came
        except TimeoutError:
            raise VaultUnavailable(f"the vault did not answer in {_TIMEOUT_S:g} s; try again") from None
        finally:
            self._waiting -= 1
        if not isinstance(answer, EgressRules):
            raise VaultUnavailable("your own rules for requests outside cannot be read at present")
        return tuple(kept.rule for kept in answer.rules)


def _pass(loop: asyncio.AbstractEventLoop, came: "asyncio.Future[Any]", answer: Any) -> None:
    """On the vault's thread; the loop may have ended meanwhile, and then nobody waits."""

    def settle() -> None:
        if not came.done():
            came.set_result(answer)

    if not loop.is_closed():
        loop.call_soon_threadsafe(settle)
