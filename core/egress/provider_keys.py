"""Whose key a chat uses: the user's own, the operator's in the vault, or the one in the key file."""

from collections.abc import Awaitable, Callable, Mapping

from core.egress.providers import ProviderError
from core.egress.secret import Secret, Striker
from core.egress.vault_access import OpenCredential, VaultUnavailable

FindKey = Callable[[str], Awaitable[Secret | None]]
"""A user (empty: the operator) to the key that their chats use; ProviderError where it cannot be told."""


class ProviderKeys:
    """Finds keys at each chat, so that a new one counts from the next chat on.

    Args:
        open: asks the vault.
        in_file: the key file's, by provider.
        striker: told of every key before it is used, so that none comes back in an answer.
    """

    def __init__(self, open: OpenCredential, in_file: Mapping[str, Secret], striker: Striker) -> None:
        self._open = open
        self._in_file = in_file
        self._striker = striker

    def of(self, provider: str) -> FindKey:
        """The finder of a provider's keys."""

        async def find(user: str) -> Secret | None:
            return await self._find(provider, user)

        return find

    async def _find(self, provider: str, user: str) -> Secret | None:
        name = f"provider:{provider}"
        try:
            # an empty user is the operator already
            for owner in dict.fromkeys((user, "")):
                found = await self._open(owner, name)
                if found is not None:
                    self._striker.add(found.secret)
                    return found.secret
        except VaultUnavailable as error:
            raise ProviderError("unavailable", f"the key of {provider} cannot be read: {error}", 5) from None
        return self._in_file.get(provider)
