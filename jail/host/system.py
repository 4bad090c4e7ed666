"""What this machine offers a jail: the layout of /usr, the interpreter, bwrap, the architecture."""

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from jail.host.messages import HostError
from jail.host.profile import System
from jail.host.syscalls import AUDIT_ARCH, Machine

_ROOT_DIRECTORIES: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
# a prefix below one of these would shadow, or be shadowed by, what the jail mounts there
_TAKEN: Final = ("/home/user", "/tmp", "/dev", "/proc", "/etc", "/certosa", "/agents")  # noqa: S108
_ASK_S: Final = 60.0  # an emulated machine is twenty times slower


def find_machine() -> Machine:
    """The architecture the filter is built for; HostError for one it has no numbers of."""
    machine = platform.machine()
    for known in AUDIT_ARCH:
        if machine == known:
            return known
    raise HostError(f"no system call filter for {machine}; Certosa runs on x86_64 and aarch64")


def find_bwrap() -> Path:
    """The path of bubblewrap; HostError with what to do when there is none."""
    found = shutil.which("bwrap", path="/usr/bin:/usr/local/bin:/bin")
    if found is None:
        raise HostError("bubblewrap is missing; install it (Debian: apt-get install bubblewrap)")
    return Path(found)


def find_system(python: str) -> System:
    """The read-only mounts of this machine and the interpreter; asks the interpreter once.

    Args:
        python: an absolute path; a link or a virtual environment's is followed to the real one.

    Raises HostError if it does not run, is of another version than this interpreter (compiled
    packages are shared with it), or lies where a jail has something else.
    """
    links: list[tuple[str, str]] = []
    mounts = ["/usr"]
    for name in _ROOT_DIRECTORIES:
        path = Path("/") / name
        if path.is_symlink():
            links.append((os.readlink(path), str(path)))
        elif path.is_dir():
            mounts.append(str(path))
    program, prefix = _ask(python)
    if not _below(program, "/usr"):
        for taken in _TAKEN:
            if _below(prefix, taken) or _below(taken, prefix):
                raise HostError(
                    f"jail.python: {prefix} cannot be mounted in a jail, which has its own {taken}; "
                    f"use /usr/bin/python3 or an interpreter below /opt"
                )
        mounts.append(prefix)
    return System(tuple(links), tuple(mounts), program)


def _below(path: str, directory: str) -> bool:
    return Path(path).is_relative_to(directory)


def _ask(python: str) -> tuple[str, str]:
    question = "import json, sys; print(json.dumps([sys.implementation.cache_tag, sys.base_prefix]))"
    program = os.path.realpath(python)
    try:
        answer = subprocess.run(
            [program, "-I", "-S", "-c", question],
            capture_output=True, timeout=_ASK_S, check=True, env={}, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        tag, prefix = json.loads(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise HostError(f"jail.python: {python} does not run: {error}") from None
    if tag != sys.implementation.cache_tag:
        raise HostError(
            f"jail.python: {python} is {tag}, Certosa itself runs on "
            f"{sys.implementation.cache_tag}; both must be the same version"
        )
    return program, os.path.realpath(prefix)
