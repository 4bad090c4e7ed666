"""Keeps one user's flood from washing everything else out of the log. Pure; times are monotonic."""

from dataclasses import dataclass

import msgspec

from core.audit.lines import By
from core.audit.records import Record

WINDOW_S = 60.0
TOTAL_PER_WINDOW = 3_000
"""Lines of all users together in a minute; acts of administrators are not counted here."""


@dataclass(slots=True)
class _Window:
    ends_s: float
    lines: int = 0
    gathered: int = 0
    last: tuple[By, Record] | None = None


class Throttle:
    """Says which records are written; of the others, how many there were when their minute is over.

    Args:
        most: lines of one user and kind in a minute.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._windows: dict[tuple[str, str], _Window] = {}
        self._all = _Window(0.0)

    def admits(self, by: By, record: Record, now_s: float) -> bool:
        """Whether this record is written; otherwise it is gathered."""
        window = self._windows.setdefault((record.kind, record.user), _Window(now_s + WINDOW_S))
        if now_s >= self._all.ends_s:
            self._all = _Window(now_s + WINDOW_S)
        if window.lines < self._most and self._all.lines < TOTAL_PER_WINDOW:
            window.lines += 1
            self._all.lines += 1
            return True
        window.gathered += record.count
        window.last = (by, record)
        return False

    def due(self, now_s: float, everything: bool = False) -> list[tuple[By, Record]]:
        """What was gathered in minutes that are over: one record each, like the last of them."""
        found: list[tuple[By, Record]] = []
        for key, window in list(self._windows.items()):
            if not everything and now_s < window.ends_s:
                continue
            del self._windows[key]
            if window.last is not None:
                by, record = window.last
                detail = f"{window.gathered} like this within a minute, the last is shown"
                found.append((by, msgspec.structs.replace(record, count=window.gathered, detail=detail)))
        return found
