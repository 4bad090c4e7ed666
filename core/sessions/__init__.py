"""Transcripts, event logs and the turn journal: one sealed database a user."""

from core.sessions.errors import (
    NoSuchSession,
    SessionBusy,
    SessionExists,
    SessionNameError,
    SessionsError,
    SessionTooLong,
    StorageError,
)
from core.sessions.library import Library
from core.sessions.log import Behind, Finished, LogEvent, TurnLog
from core.sessions.service import OpenTurn, SessionsService
from core.sessions.shelf import Cursor
from core.sessions.storage import Storage
from core.sessions.store import Labels, SessionRow
from core.sessions.turns import EphemeralSession, StoredSession

__all__ = [
    "Behind",
    "Cursor",
    "EphemeralSession",
    "Finished",
    "Labels",
    "Library",
    "LogEvent",
    "NoSuchSession",
    "OpenTurn",
    "SessionBusy",
    "SessionExists",
    "SessionNameError",
    "SessionRow",
    "SessionTooLong",
    "SessionsError",
    "SessionsService",
    "Storage",
    "StorageError",
    "StoredSession",
    "TurnLog",
]
