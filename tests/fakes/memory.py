"""Looking for bytes in the whole memory of a process."""

import os
import time
from contextlib import suppress
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PROGRAM_BYTES = 4 << 20


def wait_for_a_program(pid: int) -> None:
    """Until a worker is there: before its execve is over there is next to nothing to look at."""
    deadline_s = time.monotonic() + 60.0
    while int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES < _PROGRAM_BYTES:
        assert time.monotonic() < deadline_s, "the program never came up"
        time.sleep(0.01)


def holds(pid: int, needle: bytes) -> bool:
    """Whether ``needle`` stands anywhere in a process's memory. As root, or as its own user."""
    found = 0
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            place, mode, *_ = line.split()
            if "r" not in mode or line.endswith(("[vvar]", "[vsyscall]", "[vvar_vclock]")):
                continue
            start, end = (int(number, 16) for number in place.split("-"))
            with suppress(OSError):  # a page past the end of a mapped file
                memory.seek(start)
                data = memory.read(end - start)
                found += len(data)
                if needle in data:
                    return True
    assert found > 1 << 20, "next to nothing could be read"
    return False


def private_bytes(pid: int) -> int:
    """What a process has of its own, shared with nobody (proc_pid_smaps(5))."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Private_")) * 1024
