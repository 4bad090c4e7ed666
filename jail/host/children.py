"""The last resort at the end: every process that is still a child of ours."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path


def end_children() -> None:
    """SIGKILL for every child that is left, adopted ones too, and reap them (within 5 s)."""
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline:
        for pid in _children():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            time.sleep(0.005)


def _children() -> list[int]:
    try:
        text = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
    except OSError:
        return []  # a kernel without CONFIG_PROC_CHILDREN; PDEATHSIG and the guard remain
    return [int(pid) for pid in text.split()]
