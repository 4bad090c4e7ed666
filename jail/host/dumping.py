"""SIGUSR1: what a process is doing, in a file of its own: stacks of all threads, then its state.

The stacks come from faulthandler, which writes them in the signal handler itself, so also of a
process whose threads wait for each other for ever. What follows is written by the process's loop, if
it still turns. No value of a variable is in either.
"""

import faulthandler
import json
import os
import signal
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

_MAX_BYTES: Final = 8 << 20


class Dump:
    """A process's file, mode 0600; emptied when it is made, and again when it grows past 8 MiB.

    :meth:`arm` after a Python handler for SIGUSR1 was set, which is called too.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = open(os.open(path, flags, 0o600), "a", encoding="utf-8")  # noqa: SIM115 - kept open
        self._armed = False

    def arm(self) -> None:
        """Have the signal dump stacks from now on."""
        faulthandler.register(signal.SIGUSR1, file=self._file, all_threads=True, chain=True)
        self._armed = True

    def disarm(self) -> None:
        """No more, and close the file; harmless twice."""
        if self._armed:
            faulthandler.unregister(signal.SIGUSR1)
            self._armed = False
        self._file.close()

    def write(self, state: Mapping[str, Any], texts: Iterable[str] = ()) -> None:
        """Add the state, as JSON, and texts to what the handler wrote. A full disk is no error here."""
        with suppress(OSError):
            stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            self._file.write(f"\n== state at {stamp}\n{json.dumps(state, indent=1, default=str)}\n")
            for text in texts:
                self._file.write(f"{text}\n")
            self._file.write("== end\n")
            self._file.flush()
            if os.fstat(self._file.fileno()).st_size > _MAX_BYTES:
                os.ftruncate(self._file.fileno(), 0)
