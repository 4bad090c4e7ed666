"""Bytes as a row of choices: what a fuzzer mutates becomes what a peer does.

A run is decided by its bytes alone, so a corpus replays without the fuzzer that found it.
"""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """Reads decisions off ``data``; past its end every choice is the first one."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> bool:
        """Whether bytes are left to decide with."""
        return self._at < len(self._data)

    def byte(self) -> int:
        """0 to 255."""
        if not self.left:
            return 0
        self._at += 1
        return self._data[self._at - 1]

    def below(self, limit: int) -> int:
        """0 to ``limit`` - 1, which is 65,536 at most."""
        return self.byte() % limit if limit <= 256 else (self.byte() << 8 | self.byte()) % limit

    def chance(self, of_256: int) -> bool:
        """True for so many of 256 bytes; False past the end."""
        return self.byte() >= 256 - of_256

    def one(self, things: Sequence[T]) -> T:
        """One of them."""
        return things[self.below(len(things))]

    def some(self) -> bytes:
        """Up to 255 bytes as they are."""
        size = self.byte()
        found = self._data[self._at : self._at + size]
        self._at += len(found)
        return found

    def rest(self) -> bytes:
        """Everything left, as it is."""
        found = self._data[self._at :]
        self._at = len(self._data)
        return found
