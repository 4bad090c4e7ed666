"""Looking for a secret wherever a process may have left it: as it is, and as the usual encodings have it."""

import base64
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

_CHUNK_BYTES = 4 << 20
_MAX_FILE_BYTES = 256 << 20


class Needles:
    """A secret in all the forms that are looked for."""

    def __init__(self, secret: str) -> None:
        raw = secret.encode()
        # base64 of a text that stands anywhere in another: what its three possible offsets have in common
        shifted = (base64.b64encode(bytes(at) + raw)[4 * (at > 0) : -4] for at in range(3))
        self.forms = {raw, raw[::-1], raw.hex().encode(), quote(secret).encode(), *shifted}
        self._longest = max(len(form) for form in self.forms)

    def within(self, data: bytes) -> bool:
        """Whether some bytes have it."""
        return any(form in data for form in self.forms)

    def in_memory(self, pid: int) -> bool:
        """Whether any readable part of a process's memory has it, as root; one that has ended has none."""
        try:
            return self._finds(pid)
        except (ProcessLookupError, FileNotFoundError):
            return False

    def in_arguments(self, pid: int) -> bool:
        """Whether its command line has it."""
        return self.within(_read(Path(f"/proc/{pid}/cmdline")))

    def in_environment(self, pid: int) -> bool:
        """Whether the environment that it was started with has it, as root."""
        return self.within(_read(Path(f"/proc/{pid}/environ")))

    def in_descriptors(self, pid: int) -> list[str]:
        """Which of its open files, deleted ones and memory files too, have it; pipes are left alone."""
        found = []
        try:
            names = os.listdir(f"/proc/{pid}/fd")
        except (ProcessLookupError, FileNotFoundError):
            return []
        for name in names:
            path = Path(f"/proc/{pid}/fd/{name}")
            try:
                info = path.stat()
                small = stat.S_ISREG(info.st_mode) and info.st_size < _MAX_FILE_BYTES
                if small and self.within(_read(path)):
                    found.append(os.readlink(path))
            except (ProcessLookupError, FileNotFoundError):
                continue
        return found

    def in_files(self, directory: Path) -> list[Path]:
        """Which files below a directory have it."""
        return [path for path in files(directory) if self.within(path.read_bytes())]

    def _finds(self, pid: int) -> bool:
        with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            for line in maps:
                part = re.match(r"([0-9a-f]+)-([0-9a-f]+) (r)", line)
                if part is None or "[v" in line:
                    continue
                start, end = int(part[1], 16), int(part[2], 16)
                tail = b""
                while start < end:
                    try:
                        memory.seek(start)
                        data = memory.read(min(_CHUNK_BYTES, end - start))
                    except (OSError, ValueError):
                        break
                    if not data:
                        break
                    if self.within(tail + data):
                        return True
                    tail = data[-self._longest :]
                    start += len(data)
        return False


def files(directory: Path) -> Iterator[Path]:
    """Every regular file below a directory but the program itself."""
    for above, names, here in os.walk(directory):
        names[:] = [name for name in names if name != "_runtime"]
        for name in here:
            path = Path(above) / name
            if path.is_file() and not path.is_symlink():
                yield path


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (ProcessLookupError, FileNotFoundError):
        return b""  # it has ended
