"""What core has recorded in the audit log: it tells egress, which keeps the log, with who told it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import structlog

from core.acting import REQUEST, WHO
from core.audit.records import CoreKind, Outcome
from core.egress.account_messages import ActAudit, CoreRecord, NoteAudit
from core.egress.messages import TokenInfo
from core.egress_link import EgressLink, VaultRefused
from core.errors import LinkError
from core.hub.admin import Administration, AdministrationError, MadeToken
from core.users import User

_log = structlog.get_logger()


@dataclass(slots=True)
class Acted:
    """What an act was on."""

    on: str


class CoreAuditor:
    """Thread-safe, except :meth:`act`, which is for core's loop."""

    def __init__(self, link: EgressLink) -> None:
        self._link = link

    def note(self, record: CoreRecord) -> None:
        """Have recorded what happened. While egress is being restarted it is only logged."""
        try:
            self._link.tell(lambda i: NoteAudit(i, record))
        except LinkError:
            _log.warning("audit_note_lost", kind=record.kind, user=record.user)

    def login_failed(self, address: str, token_id: str) -> None:
        """A wrong token came; ``token_id`` is the public id in it, if it has one."""
        self.note(CoreRecord("login_failed", "refused", on=token_id, request=REQUEST.get(), detail=address))

    async def report(self, kind: CoreKind, outcome: Outcome, on: str, detail: str) -> None:
        """See core.hub.acts.Reporter."""
        record = CoreRecord(kind, outcome, WHO.get(), "", on, REQUEST.get(), detail)
        if outcome != "asked":
            self.note(record)
            return
        try:
            await self._link.ask(lambda i: ActAudit(i, record))
        except (LinkError, VaultRefused) as error:
            raise AdministrationError("unavailable", str(error)) from None

    def jail_killed(self, user: str, reason: str, detail: str) -> None:
        """A jail broke the protocol; ``detail`` is in our words."""
        self.note(CoreRecord("jail_killed", "done", user=user, on=reason, detail=detail))

    @asynccontextmanager
    async def act(
        self, kind: CoreKind, user: str = "", on: str = "", detail: str = ""
    ) -> AsyncIterator["Acted"]:
        """An administrator's act, within the block: recorded on disk before it begins, and after it.

        Yields what the block may say of the thing it made.

        Raises AdministrationError ``unavailable`` where it cannot be recorded; then nothing is done.
        """
        asked = CoreRecord(kind, "asked", WHO.get(), user, on, REQUEST.get(), detail)
        try:
            await self._link.ask(lambda i: ActAudit(i, asked))
        except (LinkError, VaultRefused) as error:
            raise AdministrationError("unavailable", str(error)) from None
        acted = Acted(on)
        outcome: Outcome = "failed"
        try:
            yield acted
            outcome = "done"
        finally:
            self.note(CoreRecord(kind, outcome, asked.who, user, acted.on, asked.request, detail))


class AuditedAdministration:
    """Implements core.hub.admin.Administration: every act is recorded, looking is not.

    Args:
        inner: carries it out.
    """

    def __init__(self, inner: Administration, auditor: CoreAuditor) -> None:
        self._inner = inner
        self._audit = auditor

    async def add_user(self, name: str) -> User:
        """See the protocol."""
        async with self._audit.act("user_added", name):
            return await self._inner.add_user(name)

    async def set_user_disabled(self, name: str, disabled: bool) -> None:
        """See the protocol."""
        async with self._audit.act("user_disabled" if disabled else "user_enabled", name):
            await self._inner.set_user_disabled(name, disabled)

    async def delete_user(self, name: str) -> None:
        """See the protocol."""
        async with self._audit.act("user_deleted", name):
            await self._inner.delete_user(name)

    async def new_token(self, user: str, label: str) -> MadeToken:
        """See the protocol."""
        async with self._audit.act("token_made", user, detail=label) as acted:
            made = await self._inner.new_token(user, label)
            acted.on = made.token_id
            return made

    async def new_admin_token(self, label: str) -> MadeToken:
        """See the protocol."""
        async with self._audit.act("admin_token_made", detail=label) as acted:
            made = await self._inner.new_admin_token(label)
            acted.on = made.token_id
            return made

    async def revoke_token(self, token_id: str) -> None:
        """See the protocol."""
        async with self._audit.act("token_revoked", on=token_id):
            await self._inner.revoke_token(token_id)

    async def test_provider(self, name: str, model: str) -> dict[str, Any]:
        """See the protocol."""
        async with self._audit.act("provider_tested", on=name, detail=model):
            return await self._inner.test_provider(name, model)

    async def evict_jail(self, user: str) -> None:
        """See the protocol."""
        async with self._audit.act("jail_evicted", user):
            await self._inner.evict_jail(user)

    async def kill_jail(self, user: str) -> None:
        """See the protocol."""
        async with self._audit.act("jail_ended", user):
            await self._inner.kill_jail(user)

    async def release_jail(self, user: str) -> None:
        """See the protocol."""
        async with self._audit.act("jail_released", user):
            await self._inner.release_jail(user)

    async def drain_pool(self, on: bool) -> None:
        """See the protocol."""
        async with self._audit.act("pool_drained" if on else "pool_opened"):
            await self._inner.drain_pool(on)

    async def list_users(self) -> list[User]:
        """See the protocol."""
        return await self._inner.list_users()

    async def list_tokens(self, user: str | None) -> list[TokenInfo]:
        """See the protocol."""
        return await self._inner.list_tokens(user)

    async def list_admin_tokens(self) -> list[TokenInfo]:
        """See the protocol."""
        return await self._inner.list_admin_tokens()

    async def status(self) -> dict[str, Any]:
        """See the protocol."""
        return await self._inner.status()
