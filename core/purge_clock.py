"""The time that purges go by: the machine's, as far as it can be believed.

A machine whose clock jumps ahead by years (a dead battery, a wrong time server) would forget at once all that
is kept for so many days. So this clock goes on from what it said last: by a day at a start, and by twice what
passes by the monotonic clock. After a long time off it catches up, and what is kept is kept that much longer.
"""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import structlog

_AT_START_S = 86_400.0
_FACTOR = 2.0
_TOLERANCE_S = 3_600.0
"""Less than that is not worth a word, or a write."""

_log = structlog.get_logger()


class PurgeClock:
    """Thread-safe.

    Args:
        believed_s: what it said last, perhaps in an earlier process (Unix time); None: never anything.
        wall_s, monotonic_s: the clocks, in seconds.
    """

    def __init__(
        self,
        believed_s: float | None,
        wall_s: Callable[[], float] = time.time,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall_s, self._monotonic_s = wall_s, monotonic_s
        self._lock = threading.Lock()
        self._at_s = monotonic_s()
        self._most_s = None if believed_s is None else believed_s + _AT_START_S
        self._held = False

    def now_s(self) -> float:
        """The Unix time to purge by."""
        with self._lock:
            wall_s, at_s = self._wall_s(), self._monotonic_s()
            most_s = wall_s if self._most_s is None else self._most_s + _FACTOR * (at_s - self._at_s)
            self._say_whether_held(wall_s - most_s)
            self._at_s, self._most_s = at_s, min(wall_s, most_s)
            return self._most_s

    def _say_whether_held(self, ahead_s: float) -> None:
        held = ahead_s > _TOLERANCE_S
        if held and not self._held:
            _log.warning(
                "purges_held_back",
                ahead_s=int(ahead_s),
                hint="the clock went ahead, or the server was off: what is old is deleted that much later",
            )
        self._held = held


class FiledPurgeClock:
    """One that remembers in a file, to the hour, what it said. Thread-safe; where that fails it warns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept_s = _read(path)
        self._clock = PurgeClock(self._kept_s)
        self._lock = threading.Lock()

    def now_s(self) -> float:
        """The Unix time to purge by."""
        found = self._clock.now_s()
        with self._lock:
            if self._kept_s is None or abs(found - self._kept_s) >= _TOLERANCE_S:
                self._keep(found)
        return found

    def _keep(self, found_s: float) -> None:
        self._kept_s = found_s
        new = self._path.with_suffix(".new")
        try:
            new.write_text(f"{int(found_s)}\n")
            os.replace(new, self._path)
        except OSError as error:
            _log.warning("purge_clock_not_kept", error=str(error))


def _read(path: Path) -> float | None:
    try:
        return float(int(path.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        _log.warning("purge_clock_not_read", error=str(error))
        return None
