"""What can go wrong with a session, in words for the person who asked."""

from typing import Literal

from core.errors import CoreError


class SessionsError(CoreError):
    """The root of the sessions' errors."""


class SessionNameError(SessionsError):
    """Not a session id."""


class SessionBusy(SessionsError):
    """A turn runs in this session; one at a time."""

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"a turn is running in session {session_id!r}: wait for its end or use another session"
        )
        self.session_id = session_id


class StorageError(SessionsError):
    """A database could not do what was asked; nothing of it was kept.

    ``code`` is ``overloaded`` where trying again soon helps, ``unavailable`` otherwise.
    """

    def __init__(self, code: Literal["overloaded", "unavailable"], message: str) -> None:
        super().__init__(message)
        self.code: Literal["overloaded", "unavailable"] = code
