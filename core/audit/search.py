"""Finds lines of the log, the latest first."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from core.audit.files import file_name, file_numbers, read_private
from core.audit.lines import Line, decode_line

MOST = 1_000
"""The longest lines of so many stay below the link's largest message."""


class Wanted(NamedTuple):
    """Which lines; an empty word is any. ``since`` and ``until`` are times as lines have them, or parts."""

    user: str = ""
    kind: str = ""
    since: str = ""
    until: str = ""
    most: int = 100

    def matches(self, line: Line) -> bool:
        """Whether a line is wanted; a user's are those about them and those of their doing."""
        return (
            (not self.user or self.user == line.user or line.who == f"user:{self.user}")
            and (not self.kind or self.kind == line.kind)
            and line.at >= self.since
            and (not self.until or line.at <= self.until)
        )


def find(directory: Path, wanted: Wanted) -> list[Line]:
    """The latest lines that match, in the order they were written. OSError, VaultError.

    What is no line is passed over here; verifying the log names it.
    """
    found: list[Line] = []
    for line in _backwards(directory):
        if wanted.matches(line):
            found.append(line)
            if len(found) >= min(wanted.most, MOST):
                break
    return found[::-1]


def _backwards(directory: Path) -> Iterator[Line]:
    for number in reversed(file_numbers(directory)):
        data = read_private(directory / file_name(number))
        for text in reversed((data or b"").split(b"\n")):
            try:
                if text:
                    yield decode_line(text)
            except (ValueError, RecursionError):
                continue
