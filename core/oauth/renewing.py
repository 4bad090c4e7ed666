"""The value to send now: a credential as it is, and of a grant an access token that is still good.

However many ask, a grant is renewed once: with servers that give a new refresh token each time, a
second use of the old one ends the grant. What the server answered is kept before it is used; where it
cannot be written it is held here and written first thing, since the old one may be worth nothing.
"""

import asyncio
import math
from collections.abc import Callable, Mapping
from time import time
from typing import Literal

import structlog

from core.audit.records import Auditor, Record
from core.egress.secret import Secret
from core.egress.vault_access import VaultAccess, VaultUnavailable
from core.oauth.client import OAuthClient
from core.oauth.grant import Grant, OAuthError
from core.oauth.section import OAuthSection
from core.vault.cabinet import Credential

_TRY_AGAIN_S = 30.0
"""After a renewal failed while the access token was still good: not with every request."""
_TRY_AGAIN_OVER_S = 3.0
"""The same once it is over."""
_LOST = frozenset({"invalid_grant"})
_log = structlog.get_logger(__name__)


class GrantLost(VaultUnavailable):
    """The grant is none any more; its owner has to connect again, as the message says."""


class Renewing:
    """Implements core.egress.vault_access.OpenCredential by :meth:`open`. On the event loop.

    Args:
        vault: keeps the grants.
        client: asks authorization servers.
        sections: by name; may be replaced by :meth:`use`.
        auditor: told of renewals.
        wall_s: the time as Unix seconds.
    """

    def __init__(
        self,
        vault: VaultAccess,
        client: OAuthClient,
        sections: Mapping[str, OAuthSection],
        auditor: Auditor,
        wall_s: Callable[[], float] = time,
    ) -> None:
        self._vault, self._client, self._auditor, self._wall_s = vault, client, auditor, wall_s
        self._sections = sections
        self._running: dict[tuple[str, str], asyncio.Task[Credential | None]] = {}
        self._unwritten: dict[tuple[str, str], tuple[int, Grant]] = {}
        self._failures: dict[tuple[str, str], tuple[float, str]] = {}  # when, and what to tell

    def use(self, sections: Mapping[str, OAuthSection]) -> None:
        """Use another configuration."""
        self._sections = sections

    async def open(self, owner: str, name: str) -> Credential | None:
        """A user's or the operator's (an empty ``owner``) credential, ready to be sent now.

        Its ``secret`` is the value to send. Raises GrantLost, VaultUnavailable.
        """
        found = await self._vault.open(owner, name)
        if found is None or found.grant is None or self._is_good(owner, found):
            return found
        task = self._running.get((owner, name))
        if task is None:
            task = asyncio.get_running_loop().create_task(self._renew(owner, name))
            self._running[owner, name] = task
            task.add_done_callback(lambda done: self._ended(owner, name, done))
        # who gives up waiting does not end it for the others, nor for the grant
        return await asyncio.shield(task)

    async def close(self, limit_s: float) -> None:
        """Let what runs come to its end: a token that was given and not kept would be lost."""
        if self._running:
            await asyncio.wait(self._running.values(), timeout=limit_s)
        for task in list(self._running.values()):
            task.cancel()

    def forget(self, owner: str) -> None:
        """A user is removed."""
        for key in [key for key in {*self._unwritten, *self._failures} if key[0] == owner]:
            self._unwritten.pop(key, None)
            self._failures.pop(key, None)

    def _ended(self, owner: str, name: str, task: "asyncio.Task[Credential | None]") -> None:
        if self._running.get((owner, name)) is task:
            del self._running[owner, name]
        if not task.cancelled():
            task.exception()  # whoever waited has it; nobody may have

    def _is_good(self, owner: str, found: Credential) -> bool:
        """Whether it can be sent as it is. Raises GrantLost, VaultUnavailable."""
        grant = found.grant
        assert grant is not None
        if grant.lost:
            raise _lost(found.name, grant)
        now_s = self._wall_s()
        if not grant.is_due(now_s):
            return True
        failed_s, why = self._failures.get((owner, found.name), (-math.inf, ""))
        if not grant.is_over(now_s):
            return now_s < failed_s + _TRY_AGAIN_S
        if now_s < failed_s + _TRY_AGAIN_OVER_S:
            raise VaultUnavailable(why)
        return False

    async def _renew(self, owner: str, name: str) -> Credential | None:
        # read again: it may have been renewed between the asker's look and this
        found = await self._vault.open(owner, name)
        if found is None or found.grant is None:
            return found
        key = (owner, name)
        held = self._unwritten.get(key)
        if held is not None and held[0] == found.version:
            return await self._keep(owner, found, held[1])
        self._unwritten.pop(key, None)
        if self._is_good(owner, found):
            return found
        try:
            fresh = await self._next(found.grant)
        except OAuthError as error:
            return await self._failed(owner, found, error)
        self._failures.pop(key, None)
        return await self._keep(owner, found, fresh)

    async def _next(self, grant: Grant) -> Grant:
        section = self._sections.get(grant.provider)
        if section is None:
            raise OAuthError("no_provider", f"{grant.provider} is not in this server's configuration")
        if not grant.refresh:
            raise OAuthError("invalid_grant", f"{grant.provider} gave no means to renew it")
        return await self._client.renew(section, grant)

    async def _keep(self, owner: str, found: Credential, grant: Grant) -> Credential | None:
        key = (owner, found.name)
        self._unwritten[key] = (found.version, grant)
        version = await self._vault.keep_grant(owner, found.name, found.version, grant)
        self._unwritten.pop(key, None)
        if version is None:
            # deleted, or connected anew, meanwhile: that one counts
            return await self._vault.open(owner, found.name)
        _log.info("grant_renewed", user=owner, credential=found.name, provider=grant.provider)
        self._note("done", owner, found.name, f"with {grant.provider}")
        return Credential(found.name, found.terms, Secret(grant.access), grant, version)

    async def _failed(self, owner: str, found: Credential, error: OAuthError) -> Credential | None:
        grant = found.grant
        assert grant is not None
        now_s = self._wall_s()
        _log.warning(
            "grant_not_renewed",
            user=owner, credential=found.name, provider=grant.provider, code=error.code,
        )  # fmt: skip
        self._note("failed", owner, found.name, f"with {grant.provider}: {error.code}")
        if error.code in _LOST:
            await self._vault.keep_grant(owner, found.name, found.version, Grant(grant.provider, lost=True))
            raise _lost(found.name, grant)
        why = f"the access token of {found.name} is over and cannot be renewed: {error}"
        self._failures[owner, found.name] = (now_s, why)
        if not grant.is_over(now_s):
            return found
        raise VaultUnavailable(why)

    def _note(self, outcome: Literal["done", "failed"], owner: str, name: str, detail: str) -> None:
        self._auditor.note(Record("credential_renewed", outcome, user=owner, on=name, detail=detail))


def _lost(name: str, grant: Grant) -> GrantLost:
    return GrantLost(
        f"{name} was revoked at {grant.provider}, or has run out: connect it again"
        f" (certosa credential connect {name} --with {grant.provider})"
    )
