"""The top floor's errors."""

from jail.wire.errors import CertosaError


class CoreError(CertosaError):
    """The root of the top floor's errors."""


class ConfigError(CoreError):
    """The configuration is wrong; the message names the key, the line, and what to do."""


class LinkError(CoreError):
    """The other process of ours is gone or spoke nonsense."""


class SealError(CoreError):
    """A sealed record did not open: another user's handle, another place, or changed bytes."""
