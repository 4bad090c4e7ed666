"""Which way of starting jails a server has: forks of a warm interpreter, or bwrap's own exec."""

import os
import stat
from pathlib import Path
from typing import Protocol

from jail.host.forking import ForkStarter
from jail.host.launcher import ExecStarter, HostUids, Starter
from jail.host.messages import HostError, Start
from jail.host.profile import System
from jail.host.syscalls import Machine


class JailHouse(Protocol):
    """What a starter has to know of a server."""

    @property
    def bwrap(self) -> Path:
        """bubblewrap's path."""
        ...

    @property
    def machine(self) -> Machine:
        """For the filter."""
        ...

    @property
    def system(self) -> System:
        """What jails mount, and their interpreter."""
        ...

    @property
    def app(self) -> Path | None:
        """The staged code, with the jails' ``lib`` beside it; needed for "fork"."""
        ...

    @property
    def start(self) -> Start:
        """How jails are started."""
        ...


def make_starter(house: JailHouse, run_dir: Path, uids: HostUids) -> Starter:
    """The starter that a server is configured for. Raises HostError where it could do harm here.

    Args:
        run_dir: a directory that only the spawner may enter.
    """
    if house.start == "exec":
        return ExecStarter(house.bwrap, run_dir, uids, house.machine)
    if house.app is None:
        raise HostError("a fork start needs the staged code")
    check_interpreter(house.system.python)
    return ForkStarter(house.bwrap, run_dir, uids, house.machine, house.system.python, house.app)


def check_interpreter(python: str) -> None:
    """Raise HostError if a jail's uid could change the interpreter's file.

    A forked worker's /proc/self/exe is the file on the host's own mount, which isn't read-only as a
    jail's is: there its owner and mode alone protect it.
    """
    info = os.stat(python)
    me = os.geteuid()
    own = me != 0 and (info.st_uid == me or os.access(python, os.W_OK))
    if own or info.st_mode & stat.S_IWOTH:
        raise HostError(
            f"{python} could be changed by the uid that jails run as, and a forked worker is not kept "
            f"from it by a read-only mount; with an interpreter of root's (jail.python) it could be used"
        )
