"""What the hub may do with credentials: everything but read a value."""

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
from core.egress_link import EgressLink, VaultRefused
from core.errors import LinkError
from core.hub.admin import AdministrationError
from core.hub.credentials import NewValue
from core.vault.terms import CredentialTerms


class CredentialDesk:
    """Implements core.hub.credentials.Keeper by asking egress."""

    def __init__(self, link: EgressLink) -> None:
        self._link = link

    async def list(self, owner: str) -> list[CredentialInfo]:
        """An owner's, without values."""
        try:
            found = await self._link.ask(lambda i: ListCredentials(i, owner))
        except VaultRefused as error:
            raise AdministrationError("invalid", str(error)) from None
        except LinkError as error:
            raise AdministrationError("unavailable", str(error)) from None
        return list(found.credentials)

    async def set(self, owner: str, name: str, terms: CredentialTerms, new: NewValue) -> int:
        """Keep one; its version."""
        try:
            kept = await self._link.ask(
                lambda i: SetCredential(i, owner, name, terms, new.value, new.sealed)
            )  # fmt: skip
        except VaultRefused as error:
            raise AdministrationError("invalid", str(error)) from None
        except LinkError as error:
            raise AdministrationError("unavailable", str(error)) from None
        return int(kept.version)

    async def delete(self, owner: str, name: str) -> None:
        """Forget one."""
        try:
            await self._link.ask(lambda i: DeleteCredential(i, owner, name))
        except VaultRefused as error:
            raise AdministrationError("not_found", str(error)) from None
        except LinkError as error:
            raise AdministrationError("unavailable", str(error)) from None

    async def box_key(self) -> bytes:
        """The public key that values may be sealed to."""
        try:
            return bytes((await self._link.ask(GetBoxKey)).key)
        except LinkError as error:
            raise AdministrationError("unavailable", str(error)) from None

    async def rotate(self) -> KeyRotated:
        """Change the master key."""
        try:
            done: KeyRotated = await self._link.ask(RotateKey)
        except VaultRefused as error:
            raise AdministrationError("invalid", str(error)) from None
        except LinkError as error:
            raise AdministrationError("unavailable", str(error)) from None
        structlog.get_logger().info("master_key_rotated", users=done.users, credentials=done.credentials)
        return done
