"""What a chaos test happens to: a real server on a small disk, with a clock that can be set."""

import mmap
import os
import random
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from tests.fakes.real_server import UNATTACKED, RealServer, own_directory, processes

DISK_BYTES = 192 << 20
JAIL_BYTES = 160 << 20
_MIB = 1 << 20

_CLOCK = """\
import mmap, os, runpy, struct, sys, time
fd = os.open(sys.argv.pop(1), os.O_RDONLY)
offset, plain = mmap.mmap(fd, 8, prot=mmap.PROT_READ), time.time
os.close(fd)
time.time = lambda: plain() + struct.unpack("d", offset[:8])[0]
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
"""
_BEFORE = """\
{unattacked}
import dataclasses
import jail.host.services as services
plain = services.ServiceProcess.__init__
def with_clock(self, loop, spec, guard):
    python, *options = spec.argv[:3]
    argv = (python, *options, "-c", {clock!r}, {file!r}, *spec.argv[3:])
    plain(self, loop, dataclasses.replace(spec, argv=argv), guard)
services.ServiceProcess.__init__ = with_clock
"""


class Clock:
    """Core's and egress's time of day (``time.time``) is the machine's plus ``offset_s``.

    A file that both have mapped, so that it changes in all processes at once and stays over their restarts.
    """

    def __init__(self, path: Path) -> None:
        path.write_bytes(struct.pack("d", 0.0))
        path.chmod(0o644)
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), 8)
        self.before = _BEFORE.format(unattacked=UNATTACKED, clock=_CLOCK, file=str(path))
        self.offset_s = 0.0

    def set(self, offset_s: float) -> None:
        """Jump."""
        self.offset_s = offset_s
        self._shared[:8] = struct.pack("d", offset_s)

    def close(self) -> None:
        """Forget the file."""
        self._shared.close()


class Disk:
    """Where the server keeps everything: small, where we may mount it (``small``)."""

    def __init__(self, path: Path, small: bool) -> None:
        self.path, self.small = path, small
        self._ballast = path / "ballast"

    def fill(self, free_bytes: int) -> None:
        """Leave so little free."""
        space = os.statvfs(self.path)
        left = space.f_bavail * space.f_frsize - free_bytes
        try:
            with self._ballast.open("ab", buffering=0) as file:
                while left > 0:
                    left -= file.write(bytes(min(left, _MIB)))
        except OSError:
            return  # others write too: it is as full as it was to be

    def free(self) -> None:
        """Give the room back."""
        self._ballast.unlink(missing_ok=True)


class World:
    """The server and what surrounds it."""

    def __init__(self, server: RealServer, disk: Disk, clock: Clock) -> None:
        self.server, self.disk, self.clock = server, disk, clock
        self.groups: set[str] = set()

    def service(self, name: str) -> int:
        """The process of core or egress that there is; 0 where none is."""
        script = {"core": b"/core/start.py", "egress": b"/core/egress/start.py"}[name]
        for process in processes().values():
            if process.parent == self.server.process.pid and script in _command_line(process.pid):
                return process.pid
        return 0

    def note_groups(self) -> None:
        """Remember which control groups this server has made."""
        record = self.server.data_dir / "_run" / "cgroups.json"
        if record.exists():
            self.groups.update(path for path in record.read_text().split('"') if path.startswith("/"))


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@contextmanager
def world() -> Iterator[World]:
    """A server that runs, on a disk of its own; all of it is gone at the end."""
    with ExitStack() as held:
        directory = held.enter_context(own_directory())
        disk = Disk(directory / "disk", os.geteuid() == 0)
        disk.path.mkdir()
        if disk.small:
            held.enter_context(_mounted(disk.path))
        clock = Clock(directory / "clock")
        held.callback(clock.close)
        server = RealServer(disk.path, _sections(), before=clock.before)
        server.log_path = directory / "server.log"  # is not what suffers from a full disk
        held.callback(server.stop)
        server.begin(_own_port())
        server.wait_ready()
        yield World(server, disk, clock)


def _own_port() -> int:
    """A free port that nobody is given by chance while the server is away: below those of port 0."""
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in random.SystemRandom().sample(range(max(1_024, low - 8_000), low), 100):
        with closing(socket.socket()) as sock, suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port
    raise OSError("no free port was found")


def _sections() -> dict[str, dict[str, object]]:
    return {
        "server": {"log_level": "info"},
        "agent.limits": {"wall_s": 60},
        "hub": {"min_free_bytes": 4 * _MIB},
        "jail": {"memory_bytes": JAIL_BYTES},
        "pool": {"idle_s": 10.0},
    }


@contextmanager
def _mounted(path: Path) -> Iterator[None]:
    options = ["-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=711", "none"]
    subprocess.run(["mount", *options, str(path)], check=True, timeout=20)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True, timeout=20)
