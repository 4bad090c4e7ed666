"""What a command raises when it cannot do what was asked."""

from typing import Final

from core.errors import CoreError

FAILED: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3


class CommandFailed(CoreError):
    """One sentence for stderr that says what to do.

    Args:
        message: the sentence.
        status: the exit code; see the epilog of ``certosa --help``.
    """

    def __init__(self, message: str, status: int = FAILED) -> None:
        super().__init__(message)
        self.status = status
