"""What the vault refuses, in words for the operator. Never carries a secret."""

from core.errors import CoreError


class VaultError(CoreError):
    """The vault cannot be opened; the message names the file and says what to do."""


class VaultRefusal(CoreError):
    """One request cannot be granted; the message is for the person who asked."""
