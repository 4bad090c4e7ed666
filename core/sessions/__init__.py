"""Transcripts, event logs and the turn journal: one sealed database a user."""

from core.sessions.errors import (
    NoSuchSession,
    SessionBusy,
    SessionExists,
    SessionNameError,
    SessionsError,
    SessionTooLong,
    StorageError,
    TurnExists,
)
from core.sessions.events import SessionEvent
from core.sessions.library import Library
from core.sessions.log import Behind, Finished, LogEvent, TurnLog
from core.sessions.openturns import INTERRUPTED, GoesOn
from core.sessions.recovery import Asked
from core.sessions.service import OpenTurn, SessionsService
from core.sessions.shelf import Cursor
from core.sessions.storage import Storage
from core.sessions.store import Labels, SessionRow
from core.sessions.turns import EphemeralSession, StoredSession
from core.sessions.watching import Lost, Watch

__all__ = [
    "INTERRUPTED",
    "Asked",
    "Behind",
    "Cursor",
    "EphemeralSession",
    "Finished",
    "GoesOn",
    "Labels",
    "Library",
    "LogEvent",
    "Lost",
    "NoSuchSession",
    "OpenTurn",
    "SessionBusy",
    "SessionEvent",
    "SessionExists",
    "SessionNameError",
    "SessionRow",
    "SessionTooLong",
    "SessionsError",
    "SessionsService",
    "Storage",
    "StorageError",
    "StoredSession",
    "TurnExists",
    "TurnLog",
    "Watch",
]
