"""What a jail is made of, as a pure function: a profile in, bwrap's arguments out.

The arguments travel by ``--args FD``, so that nothing of them stands in /proc/1/cmdline inside.
Paths come from the data directory and a validated user id alone (design.md 8).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from jail.host.messages import HostError

_USER = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}", re.ASCII)

JAIL_ID: Final = 1000
"""The uid and gid a worker sees itself as."""

LISTENER_FD: Final = 3
"""The worker's only descriptor beyond /dev/null: the Unix socket its ZeroMQ PAIR binds."""

ENVIRONMENT: Final[dict[str, str]] = {
    "HOME": "/home/user",
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "PYTHONDONTWRITEBYTECODE": "1",
}
"""All that a worker finds, beside the PWD that bwrap itself adds for --chdir."""

WORKER: Final = ("-I", "-S", "/certosa/lib/jail/peer/start.py")
"""What the interpreter is given."""


@dataclass(frozen=True, slots=True)
class JailFds:
    """Descriptors as bwrap finds them; it closes each of these before the worker runs."""

    args: int = 4
    seccomp: int = 5
    status: int = 6
    gate: int = 7
    mounts: int = 8  # the first of them


CREDENTIALS_DIR: Final = "/run/credentials"
"""Where credentials lie that the operator lets lie in a jail as files."""

COMMAND_LINE: Final = ("--disable-userns", "--args", str(JailFds().args))
"""bwrap's own options; it refuses these alone, should nothing come by ``--args``."""


@dataclass(frozen=True, slots=True)
class Limits:
    """A jail's limits.

    Args:
        processes, open_files, file_bytes, address_bytes: rlimits of every process in it.
        tmp_bytes: of each tmpfs.
        memory_bytes, swap_bytes: of all of it together, tmpfs and the kernel's part with it; 0 is no limit.
        cpu_weight: its share where several want the CPU; 100 is the ordinary one.
        cpus: of the CPU at most, in CPUs; 0 is no limit.
        disk_bytes, disk_files: what its home may hold; 0 is no limit.
    """

    processes: int = 128
    open_files: int = 256
    file_bytes: int = 256 << 20
    address_bytes: int = 2 << 30
    tmp_bytes: int = 64 << 20
    memory_bytes: int = 1 << 30
    swap_bytes: int = 0
    cpu_weight: int = 100
    cpus: float = 0.0
    disk_bytes: int = 0
    disk_files: int = 0


@dataclass(frozen=True, slots=True)
class UserPaths:
    """A user's directories on the host."""

    user: Path
    home: Path
    agents: Path


@dataclass(frozen=True, slots=True)
class System:
    """What of this machine every jail mounts read-only; see :mod:`jail.host.system`."""

    links: tuple[tuple[str, str], ...]  # (target, path), as in a merged /usr
    mounts: tuple[str, ...]  # at the same path inside
    python: str


@dataclass(frozen=True, slots=True)
class Profile:
    """One jail. ``lib`` and ``etc`` are staged directories (see :mod:`jail.host.staging`).

    ``mounts`` are names of credentials that lie in it as files; their values come by descriptors.
    """

    system: System
    lib: Path
    etc: Path
    home: Path
    agents: Path
    limits: Limits = Limits()
    command: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()

    @property
    def program(self) -> tuple[str, ...]:
        """What runs as the jail's pid 1: ``command``, or the worker."""
        return self.command or (self.system.python, *WORKER)


def user_paths(data_dir: Path, user: str) -> UserPaths:
    """The directories of a user; HostError for an id that isn't one."""
    if not _USER.fullmatch(user):
        raise HostError("not a user id")
    root = data_dir / "users" / user
    return UserPaths(root, root / "home", root / "agents")


def arguments(profile: Profile, fds: JailFds | None = None, *, die_with_parent: bool = True) -> list[str]:
    """bwrap's options for a profile, without the command; ``fds`` None leaves all of them out."""
    return [
        *_namespaces(),
        *(("--die-with-parent",) if die_with_parent else ()),
        *_environment(),
        *_file_system(profile, fds),
        *(_descriptors(fds) if fds is not None else ()),
        # with --disable-userns no process of the jail can make a namespace in which it would have
        # capabilities; it needs this, which is the last, so that bwrap refuses a part of the arguments
        "--disable-userns",
        "--unshare-user",
    ]


def args_bytes(args: Sequence[str]) -> bytes:
    """Arguments as ``--args`` reads them; HostError where one holds a NUL."""
    if any("\0" in arg for arg in args):
        raise HostError("a NUL in a path")
    return b"".join(arg.encode() + b"\0" for arg in args)


def _namespaces() -> list[str]:
    return [
        "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
        "--uid", str(JAIL_ID), "--gid", str(JAIL_ID), "--hostname", "jail",
        "--cap-drop", "ALL",
        # bwrap's own pid 1 would be of the same uid, without a filter, and writable through /proc
        "--as-pid-1",
        "--new-session",  # without it TIOCSTI types into the outer terminal
    ]  # fmt: skip


def _environment() -> list[str]:
    args = ["--clearenv"]
    for name, value in ENVIRONMENT.items():
        args += ["--setenv", name, value]
    return args


def _file_system(profile: Profile, fds: JailFds | None) -> list[str]:
    args: list[str] = []
    for path in profile.system.mounts:
        args += ["--ro-bind", path, path]
    for target, path in profile.system.links:
        args += ["--symlink", target, path]
    tmpfs = ["--perms", "1777", "--size", str(profile.limits.tmp_bytes), "--tmpfs"]
    args += [
        "--ro-bind", str(profile.etc), "/etc",
        # Debian's alternatives (awk, editor) and the loader's cache are links and lists, no more
        "--ro-bind-try", "/etc/alternatives", "/etc/alternatives",
        "--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache",
        "--proc", "/proc", "--dev", "/dev",
        *tmpfs, "/dev/shm", *tmpfs, "/tmp",  # noqa: S108
        "--ro-bind", str(profile.lib), "/certosa/lib",
        "--ro-bind", str(profile.agents), "/agents",
        "--bind", str(profile.home), "/home/user",
        *(_mounts(profile.mounts, fds) if fds is not None else ()),
        # both are tmpfs of half the memory otherwise
        "--remount-ro", "/dev", "--remount-ro", "/",
        "--chdir", "/home/user",
    ]  # fmt: skip
    return args


def _mounts(names: Sequence[str], fds: JailFds) -> list[str]:
    """Each a file of its own, the jail's uid's; bwrap copies it from the descriptor and closes that."""
    args: list[str] = []
    for number, name in enumerate(names, fds.mounts):
        args += ["--perms", "0400", "--ro-bind-data", str(number), f"{CREDENTIALS_DIR}/{name}"]
    return args


def _descriptors(fds: JailFds) -> list[str]:
    return [
        "--seccomp", str(fds.seccomp),
        "--json-status-fd", str(fds.status),
        "--block-fd", str(fds.gate),
    ]  # fmt: skip
