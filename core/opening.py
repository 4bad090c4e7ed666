"""Opening files that somebody else may have put there."""

import os
from pathlib import Path

from core.errors import CoreError


def open_to_judge(path: Path, error: type[CoreError]) -> int | None:
    """A descriptor to judge and then read; None where there is no file. Raises ``error``.

    Neither a link nor a FIFO leads anywhere, and what was judged by its descriptor is what is read.
    """
    try:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as failed:
        raise error(f"{path}: cannot be opened: {failed.strerror}") from None
