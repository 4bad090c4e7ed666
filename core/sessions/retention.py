"""How long sessions are kept: by the day of their last use, for every user, whether they come or not.

Times of last use are not sealed, so what is too old can be deleted without its owner's key.
"""

import sqlite3
import time
import zlib
from collections import deque
from pathlib import Path

import structlog

from core.purge_clock import FiledPurgeClock
from core.sessions.shelf import expire

_DAY_S = 86_400
_AT_ONCE = 200
"""Sessions in one transaction; what is left waits for its next turn."""

_log = structlog.get_logger()


def shard_of(user: str, threads: int) -> int:
    """Which storage thread a user belongs to."""
    return zlib.crc32(user.encode()) % threads


class Retention:
    """The rule for the users of one storage thread, and whose turn it is. Used on that thread.

    Args:
        directory: where ``<user>.db`` lie.
        number, threads: which thread, of how many.
        keep_days: 0: for ever.
        clock: all threads'.
    """

    def __init__(
        self, directory: Path, number: int, threads: int, keep_days: int, clock: FiledPurgeClock
    ) -> None:
        self._directory = directory
        self._number, self._threads = number, threads
        self._keep_s = keep_days * _DAY_S
        self._clock = clock
        self._users: deque[str] = deque()
        self._next_s = time.monotonic()

    def due_in_s(self) -> float | None:
        """When :meth:`next_user` is to be asked again (in seconds), None: never."""
        if not self._keep_s:
            return None
        return 0.0 if self._users else self._next_s - time.monotonic()

    def next_user(self) -> str | None:
        """Whose database the rule is to be applied to now: each once a day."""
        due_in_s = self.due_in_s()
        if due_in_s is None or due_in_s > 0:
            return None
        if not self._users:
            self._next_s = time.monotonic() + _DAY_S
            users = sorted(path.stem for path in self._directory.glob("*.db"))
            self._users.extend(user for user in users if shard_of(user, self._threads) == self._number)
        return self._users.popleft() if self._users else None

    def apply(self, user: str, connection: sqlite3.Connection) -> None:
        """Delete what is too old, inside a transaction of the caller's."""
        if not self._keep_s:
            return
        deleted = expire(connection, int(self._clock.now_s()) - self._keep_s, _AT_ONCE)
        if deleted:
            _log.info("sessions_expired", user=user, sessions=deleted)
        if deleted >= _AT_ONCE and user not in self._users:
            self._users.append(user)
