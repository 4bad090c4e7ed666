"""What the machine has to spare."""

from pathlib import Path

from core.errors import CoreError

_MEMINFO = Path("/proc/meminfo")


def available_bytes(path: Path = _MEMINFO) -> int:
    """MemAvailable: what can be taken without swapping (proc_meminfo(5)). Raises CoreError."""
    try:
        with path.open("rb") as lines:
            for line in lines:
                if line.startswith(b"MemAvailable:"):
                    return int(line.split()[1]) * 1_024
    except (OSError, ValueError, IndexError) as error:
        raise CoreError(f"{path} cannot be read: {error}") from None
    raise CoreError(f"{path} has no MemAvailable: this kernel is too old")
