"""What the hub may do with credentials: everything but read a value."""

from collections.abc import Callable

import structlog

from core.egress.credential_messages import (
    CredentialInfo,
    DeleteCredential,
    GetBoxKey,
    KeyRotated,
    ListCredentials,
    RotateKey,
    SetCredential,
)
from core.egress.oauth_messages import (
    AskConnect,
    BeginConnect,
    ConnectBegun,
    ConnectSeen,
    ConnectTold,
    FinishConnect,
    ListOAuth,
    LookConnect,
    OAuthInfo,
)
from core.egress_link import EgressLink
from core.hub.connecting import ConnectBody
from core.hub.credentials import NewValue
from core.refusals import answered
from core.vault.terms import CredentialTerms


class CredentialDesk:
    """Implements core.hub.credentials.Keeper by asking egress.

    Args:
        changed: told an owner and a name that may have another value now, or none.
    """

    def __init__(self, link: EgressLink, changed: Callable[[str, str], None]) -> None:
        self._link, self._changed = link, changed

    async def list(self, owner: str) -> list[CredentialInfo]:
        """An owner's, without values."""
        found = await answered(self._link.ask(lambda i: ListCredentials(i, owner)))
        return list(found.credentials)

    async def set(self, owner: str, name: str, terms: CredentialTerms, new: NewValue) -> int:
        """Keep one; its version."""
        try:
            kept = await answered(
                self._link.ask(lambda i: SetCredential(i, owner, name, terms, new.value, new.sealed))
            )
        finally:
            self._changed(owner, name)  # without an answer it may have been kept all the same
        return int(kept.version)

    async def delete(self, owner: str, name: str) -> None:
        """Forget one."""
        try:
            await answered(self._link.ask(lambda i: DeleteCredential(i, owner, name)), "not_found")
        finally:
            self._changed(owner, name)

    async def box_key(self) -> bytes:
        """The public key that values may be sealed to."""
        return bytes((await answered(self._link.ask(GetBoxKey))).key)

    async def rotate(self) -> KeyRotated:
        """Change the master key."""
        done: KeyRotated = await answered(self._link.ask(RotateKey))
        structlog.get_logger().info("master_key_rotated", users=done.users, credentials=done.credentials)
        return done


class ConnectDesk:
    """Implements core.hub.connecting.Connector by asking egress."""

    def __init__(self, link: EgressLink) -> None:
        self._link = link

    async def begin(self, owner: str, name: str, body: ConnectBody) -> ConnectBegun:
        """Begin to connect a credential."""
        begun: ConnectBegun = await answered(
            self._link.ask(
                lambda i: BeginConnect(
                    i, owner, name, body.provider, body.flow, body.host, body.path, body.scopes
                )
            )
        )
        return begun

    async def told(self, owner: str, name: str) -> ConnectTold:
        """How far it is."""
        told: ConnectTold = await answered(self._link.ask(lambda i: AskConnect(i, owner, name)), "not_found")
        return told

    async def look(self, provider: str, state: str) -> ConnectSeen:
        """Whose a state is."""
        seen: ConnectSeen = await answered(self._link.ask(lambda i: LookConnect(i, provider, state)))
        return seen

    async def finish(self, provider: str, state: str, code: str, error: str) -> None:
        """A browser came back."""
        await answered(self._link.ask(lambda i: FinishConnect(i, provider, state, code, error)))

    async def providers(self, owner: str) -> tuple[OAuthInfo, ...]:
        """What a user may connect with."""
        listed = await answered(self._link.ask(lambda i: ListOAuth(i, owner)))
        return tuple(listed.providers)
