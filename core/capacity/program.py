"""A module of this checkout as a program beside us."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SOURCE = Path(__file__).resolve().parents[2]
_RUN = """\
import runpy, sys
sys.path.insert(0, sys.argv.pop(1))
runpy.run_module(sys.argv.pop(1), run_name="__main__")
"""
_END_S = 60.0


@contextmanager
def running_module(
    module: str, *arguments: str, terminate: bool = False
) -> Iterator["subprocess.Popen[str]"]:
    """Run it with pipes. It is to end when its input does, which is closed at the end.

    Args:
        terminate: it does not end by that, but by SIGTERM.
    """
    argv = [sys.executable, "-I", "-c", _RUN, str(_SOURCE), module, *arguments]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        if terminate:
            process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
