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


class NoSuchSession(SessionsError):
    """This user has none of that id."""

    def __init__(self) -> None:
        super().__init__("you have no session of this id; GET /v1/sessions lists yours")


class SessionExists(SessionsError):
    """This user has one of that id already."""

    def __init__(self) -> None:
        super().__init__("you have a session of this id already: choose another")


class SessionTooLong(SessionsError):
    """More than may be copied at once."""

    def __init__(self, messages: int, size_bytes: int) -> None:
        super().__init__(f"a fork has at most {messages} messages and {size_bytes} bytes: fork earlier")


class StorageError(SessionsError):
    """A database could not do what was asked; nothing of it was kept.

    ``code`` is ``overloaded`` where trying again soon helps, ``unavailable`` otherwise.
    """

    def __init__(self, code: Literal["overloaded", "unavailable"], message: str) -> None:
        super().__init__(message)
        self.code: Literal["overloaded", "unavailable"] = code
