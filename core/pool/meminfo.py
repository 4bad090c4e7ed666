"""What the machine has, and has to spare."""

from pathlib import Path
from typing import NamedTuple

from core.errors import CoreError

_MEMINFO = Path("/proc/meminfo")


class Machine(NamedTuple):
    """Memory in bytes: MemTotal, and MemAvailable, which can be taken without swapping (proc_meminfo(5))."""

    memory_bytes: int
    available_bytes: int


def machine(path: Path = _MEMINFO) -> Machine:
    """As it is now. Raises CoreError."""
    found: dict[bytes, int] = {}
    try:
        with path.open("rb") as lines:
            for line in lines:
                name, _, value = line.partition(b":")
                if name in (b"MemTotal", b"MemAvailable"):
                    found[name] = int(value.split()[0]) * 1_024
                if len(found) == 2:
                    return Machine(found[b"MemTotal"], found[b"MemAvailable"])
    except (OSError, ValueError, IndexError) as error:
        raise CoreError(f"{path} cannot be read: {error}") from None
    raise CoreError(f"{path} has no MemAvailable: this kernel is too old")


def available_bytes(path: Path = _MEMINFO) -> int:
    """MemAvailable. Raises CoreError."""
    return machine(path).available_bytes
