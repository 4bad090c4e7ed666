"""What is done to credentials and keys, recorded: who asked for it; egress adds what came of it."""

from core.audited import CoreAuditor
from core.egress.credential_messages import CredentialInfo, KeyRotated
from core.egress.oauth_messages import ConnectBegun, ConnectSeen, ConnectTold, OAuthInfo
from core.hub.connecting import ConnectBody, Connector
from core.hub.credentials import Keeper, NewValue
from core.vault.terms import CredentialTerms


class AuditedKeeper:
    """Implements core.hub.credentials.Keeper: every change is recorded, looking is not.

    Args:
        inner: carries it out.
    """

    def __init__(self, inner: Keeper, auditor: CoreAuditor) -> None:
        self._inner = inner
        self._audit = auditor

    async def list(self, owner: str) -> list[CredentialInfo]:
        """See the protocol."""
        return await self._inner.list(owner)

    async def set(self, owner: str, name: str, terms: CredentialTerms, new: NewValue) -> int:
        """See the protocol."""
        async with self._audit.act("credential_changed", owner, name, "set"):
            return await self._inner.set(owner, name, terms, new)

    async def delete(self, owner: str, name: str) -> None:
        """See the protocol."""
        async with self._audit.act("credential_changed", owner, name, "delete"):
            await self._inner.delete(owner, name)

    async def box_key(self) -> bytes:
        """See the protocol."""
        return await self._inner.box_key()

    async def rotate(self) -> KeyRotated:
        """See the protocol."""
        async with self._audit.act("key_rotated"):
            return await self._inner.rotate()


class AuditedConnector:
    """Implements core.hub.connecting.Connector: that a user began is recorded; what came of it, egress says.

    Args:
        inner: carries it out.
    """

    def __init__(self, inner: Connector, auditor: CoreAuditor) -> None:
        self._inner = inner
        self._audit = auditor

    async def begin(self, owner: str, name: str, body: ConnectBody) -> ConnectBegun:
        """See the protocol."""
        async with self._audit.act(
            "credential_changed", owner, name, f"begin to connect with {body.provider}"
        ):
            return await self._inner.begin(owner, name, body)

    async def told(self, owner: str, name: str) -> ConnectTold:
        """See the protocol."""
        return await self._inner.told(owner, name)

    async def look(self, provider: str, state: str) -> ConnectSeen:
        """See the protocol."""
        return await self._inner.look(provider, state)

    async def finish(self, provider: str, state: str, code: str, error: str) -> None:
        """See the protocol."""
        await self._inner.finish(provider, state, code, error)

    async def providers(self, owner: str) -> tuple[OAuthInfo, ...]:
        """See the protocol."""
        return await self._inner.providers(owner)
