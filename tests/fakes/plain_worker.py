"""Starts a worker as a plain process, without a jail: the same library, the same flags.

A worker is pid 1 in its jail; here it is made a subreaper (prctl(2)), so that orphans fall to it.
"""

import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path

_LAUNCH = """
import ctypes, os, sys
lib, fd, home = sys.argv[1:]
sys.path.insert(0, lib)
sys.modules["ssl"] = None
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
exec(os.environ.pop("TEST_BEFORE", ""))
from jail.peer.worker import run
os._exit(run(int(fd), home))
"""
# the start script expects its socket as descriptor 3
_AS_3 = "import os, sys; os.dup2(int(sys.argv[1]), 3); os.execv(sys.argv[2], sys.argv[2:])"
_PACKAGES = ("zmq", "pyzmq.libs", "msgpack", "msgspec")


def make_library(where: Path) -> Path:
    """A directory with exactly what a jail's ``/certosa/lib`` holds."""
    jail = where / "jail"
    jail.mkdir(parents=True)
    source = Path(__file__).resolve().parents[2] / "jail"
    (jail / "__init__.py").symlink_to(source / "__init__.py")
    for name in ("wire", "peer"):
        (jail / name).symlink_to(source / name)
    found = importlib.util.find_spec("zmq")
    assert found is not None
    assert found.origin is not None
    packages = Path(found.origin).parents[1]
    for name in _PACKAGES:
        if (packages / name).exists():
            (where / name).symlink_to(packages / name)
    return where


class PlainWorker:
    """A worker process and the socket that core's end uses.

    Args:
        library: see :func:`make_library`.
        directory: an empty one, for the home.
        start_script: run jail/peer/start.py itself, whose home is the jail's.
        before: a program that runs in the worker before it starts, to break something in it.
    """

    def __init__(
        self, library: Path, directory: Path, *, start_script: bool = False, before: str = ""
    ) -> None:
        self.said = ""
        self.home = directory / "home"
        self.home.mkdir(exist_ok=True)
        path = str(directory / "edge")
        environment = {
            "HOME": str(self.home),
            "PATH": "/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "PYTHONDONTWRITEBYTECODE": "1",
            "TEST_BEFORE": before,
        }
        python = [os.path.realpath(sys.executable), "-I", "-S"]
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen(1)
            fd = listener.fileno()
            if start_script:
                script = str(library / "jail/peer/start.py")
                argv = [*python, "-c", _AS_3, str(fd), *python, script]
            else:
                argv = [*python, "-c", _LAUNCH, str(library), str(fd), str(self.home)]
            self.process = subprocess.Popen(
                argv,
                env=environment,
                cwd=self.home,
                pass_fds=[fd],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.connect(path)
        os.unlink(path)

    def descendants(self) -> list[int]:
        """Pids of all that runs below the worker, zombies apart."""
        parents = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if state not in "ZX":
                parents[int(stat.parent.name)] = int(parent)
        below = {self.process.pid}
        while more := {pid for pid, parent in parents.items() if parent in below} - below:
            below |= more
        return sorted(below - {self.process.pid})

    def zombies(self) -> int:
        """How many children of the worker wait to be reaped."""
        count = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            except (FileNotFoundError, ProcessLookupError):
                continue
            count += state == "Z" and int(parent) == self.process.pid
        return count

    def wait(self, timeout_s: float) -> int:
        """The exit status."""
        return self.process.wait(timeout_s)

    def close(self) -> str:
        """End it and everything of it; what it wrote to stderr."""
        self.sock.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        assert self.process.stderr is not None
        if not self.process.stderr.closed:
            with self.process.stderr as stream:
                self.said = stream.read().decode()
        return self.said
