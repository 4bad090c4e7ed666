"""How an attempt went, beside how it had to go."""

import errno
import os
from collections.abc import Callable
from typing import Any


class Findings:
    """A list of findings as plain JSON."""

    def __init__(self) -> None:
        self._list: list[dict[str, Any]] = []

    def as_json(self) -> list[dict[str, Any]]:
        """All findings so far."""
        return self._list

    def add(self, attempt: str, expected: object, got: object, ok: bool) -> None:
        """One finding, judged by the caller."""
        found = {"attempt": attempt, "expected": str(expected), "got": str(got), "ok": ok}
        self._list.append(found)

    def equal(self, attempt: str, expected: object, got: object) -> None:
        """Something that must be exactly so."""
        self.add(attempt, expected, got, expected == got)

    def refused(
        self, attempt: str, act: Callable[..., object], *args: object, numbers: tuple[int, ...] = ()
    ) -> None:
        """An act that must raise OSError: with one of these errno values, or any when none is given."""
        names = "|".join(errno.errorcode[number] for number in numbers) or "refused"
        try:
            act(*args)
        except OSError as error:
            name = errno.errorcode.get(error.errno or 0, str(error))
            self.add(attempt, names, name, not numbers or error.errno in numbers)
        else:
            self.add(attempt, names, "done", False)

    def works(self, attempt: str, act: Callable[..., object], *args: object) -> None:
        """An act that must succeed: the positive control."""
        try:
            act(*args)
        except OSError as error:
            self.add(f"control: {attempt}", "done", f"{error}", False)
        else:
            self.add(f"control: {attempt}", "done", "done", True)

    def child(self, attempt: str, signal_number: int, act: Callable[..., object], *args: object) -> None:
        """An act in a child of its own, which must die of this signal."""
        pid = os.fork()
        if pid == 0:
            try:
                act(*args)
            finally:
                os._exit(0)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        self.equal(attempt, f"signal {signal_number}", f"signal {-code}" if code < 0 else "done")
