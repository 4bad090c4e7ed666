"""What goes wrong with a backup, in words for the operator."""

from core.errors import CoreError


class BackupError(CoreError):
    """Not made, not right or not restored; the message says which and what to do."""
