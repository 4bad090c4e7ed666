"""Transcripts, event logs and the turn journal: one sealed database a user."""

from core.sessions.errors import SessionBusy, SessionNameError, SessionsError, StorageError
from core.sessions.log import Behind, Finished, LogEvent, TurnLog
from core.sessions.service import OpenTurn, SessionsService
from core.sessions.storage import Storage
from core.sessions.turns import EphemeralSession, StoredSession

__all__ = [
    "Behind",
    "EphemeralSession",
    "Finished",
    "LogEvent",
    "OpenTurn",
    "SessionBusy",
    "SessionNameError",
    "SessionsError",
    "SessionsService",
    "Storage",
    "StorageError",
    "StoredSession",
    "TurnLog",
]
