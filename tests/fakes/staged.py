"""Staged code for servers and houses of tests: compiled once for each test process, then copied.

Each has a data directory of its own, and would compile five hundred modules for it before it does
anything. A copy that doesn't fit the checkout costs time alone: a server takes what has its digest and
stages anew otherwise. That it can is shown by ``tests/unit/host/test_staging.py`` and by the
demonstration, which begins with nothing.
"""

import shutil
import tempfile
from functools import cache
from pathlib import Path

from jail.host.staging import stage

_SOURCE = Path(__file__).resolve().parents[2]


def lay_staged(data_dir: Path) -> None:
    """Put the staged code into a data directory that has none yet; the directory exists."""
    runtime = data_dir / "_runtime"
    if not runtime.exists():
        shutil.copytree(_original() / "_runtime", runtime)


def forget_staged() -> None:
    """Remove the original, at the end of the run."""
    if _original.cache_info().currsize:
        shutil.rmtree(_original())
        _original.cache_clear()


@cache
def _original() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="certosa-staged-"))
    stage(directory, _SOURCE).close()
    return directory
