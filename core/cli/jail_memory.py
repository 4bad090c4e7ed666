"""What a jail's processes hold in memory, as the host sees it."""

import re
from pathlib import Path

_PSS = re.compile(r"^Pss:\s+(\d+) kB$", re.MULTILINE)
_RSS = re.compile(r"^VmRSS:\s+(\d+) kB$", re.MULTILINE)
_IS_BWRAP = re.compile(r"^Name:\tbwrap\n(?:.*\n)*?Pid:\s+(\d+)$", re.MULTILINE)
_PPID = re.compile(r"^PPid:\s+(\d+)$", re.MULTILINE)


def jail_memory_bytes(pid: int, proc: Path = Path("/proc")) -> int:
    """The memory of a jail: its pid 1, all that descends from it, and the bwrap above; 0 once ended.

    Proportional, that is shared pages in parts (proc_pid_smaps(5)); where the kernel does not let
    us see that of a process, its resident memory, which counts shared pages whole.
    """
    children: dict[int, list[int]] = {}
    for entry in proc.iterdir():
        if entry.name.isdigit() and (parent := _number(entry / "status", _PPID)) is not None:
            children.setdefault(parent, []).append(int(entry.name))
    total_kib, waiting = 0, [_bwrap_above(pid, proc) or pid]
    while waiting:
        one = waiting.pop()
        waiting += children.pop(one, ())
        pss = _number(proc / str(one) / "smaps_rollup", _PSS)
        rss = _number(proc / str(one) / "status", _RSS)
        total_kib += pss if pss is not None else rss or 0
    return total_kib * 1024


def _bwrap_above(pid: int, proc: Path) -> int | None:
    parent = _number(proc / str(pid) / "status", _PPID)
    return parent if parent and _number(proc / str(parent) / "status", _IS_BWRAP) else None


def _number(file: Path, pattern: re.Pattern[str]) -> int | None:
    """None where the process has ended meanwhile, or may not be looked at."""
    try:
        found = pattern.search(file.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
    return int(found[1]) if found else None
