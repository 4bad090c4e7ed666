"""Real jails for tests: a data directory that every uid can reach, users, and a shell in each jail."""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from jail.host.forking import ForkStarter
from jail.host.launcher import ExecStarter, HostUids, JailSpec
from jail.host.layout import Layout, Owners
from jail.host.oneshot import advance
from jail.host.process import Identity
from jail.host.profile import Limits, Profile, user_paths
from jail.host.running import Phase, RunningJail
from jail.host.staging import Staged, stage
from jail.host.system import find_bwrap, find_machine, find_system
from tests.fakes import jail_shell
from tests.fakes.staged import lay_staged

SOURCE = Path(__file__).resolve().parents[2]
UID_BASE = 1_987_000_000
USER_UIDS = range(UID_BASE + 1_000, UID_BASE + 2_000)
START_S = 60.0


def is_root() -> bool:
    """Whether users have host uids of their own here."""
    return os.geteuid() == 0


class House:
    """A data directory with staged code; ``close`` removes it."""

    def __init__(self) -> None:
        self.data_dir = Path(tempfile.mkdtemp(prefix="certosa-test-", dir="/tmp"))
        self.owners = (
            Owners(Identity(UID_BASE, UID_BASE), Identity(UID_BASE + 1, UID_BASE + 1)) if is_root() else None
        )
        self.layout = Layout(self.data_dir, self.owners)
        self.layout.prepare()
        lay_staged(self.data_dir)
        self.staged: Staged = stage(self.data_dir, SOURCE)
        self.system = find_system("/usr/bin/python3")
        self.machine = find_machine()
        self.bwrap = find_bwrap()
        uids = HostUids(USER_UIDS)
        fork = ForkStarter(
            self.bwrap, self.layout.run_dir, uids, self.machine, self.system.python, self.staged.app
        )
        self.starters: dict[str, ExecStarter | ForkStarter] = {
            "exec": ExecStarter(self.bwrap, self.layout.run_dir, uids, self.machine),
            "fork": fork,
        }
        fork.template.warm()
        self._uids: dict[str, int] = {}

    def uid(self, user: str) -> int:
        """The host uid that requests for ``user`` carry: 0 for an ordinary user's server."""
        if not is_root():
            return 0
        return self._uids.setdefault(user, USER_UIDS.start + len(self._uids))

    def add(self, user: str) -> Path:
        """Make a user's directories; the home."""
        self.layout.prepare_user(user, self.uid(user))
        return user_paths(self.data_dir, user).home

    def write(self, path: Path, text: str, user: str) -> None:
        """Write a file as if the user had."""
        path.write_text(text)
        if is_root():
            os.chown(path, self.uid(user), self.uid(user))

    def spec(self, user: str, limits: Limits, command: tuple[str, ...]) -> JailSpec:
        """A user's jail, running ``command``."""
        paths = user_paths(self.data_dir, user)
        profile = Profile(
            self.system, self.staged.lib, self.staged.etc, paths.home, paths.agents, limits, command
        )
        return JailSpec(profile, self.uid(user))

    def close(self) -> None:
        """Remove all of it."""
        for starter in self.starters.values():
            starter.close()
        self.staged.close()
        shutil.rmtree(self.data_dir)


class ShellJail:
    """A running jail with a shell in it; a context manager that ends it."""

    def __init__(
        self,
        house: House,
        user: str,
        limits: Limits | None = None,
        command: tuple[str, ...] = jail_shell.COMMAND,
        change: Callable[[JailSpec], JailSpec] = lambda spec: spec,
        start: str = "fork",
    ) -> None:
        spec = change(house.spec(user, limits or Limits(), command))
        self.start = start
        self.jail: RunningJail = house.starters[start].start(spec)
        self.advance_until(lambda: self.jail.phase is not Phase.STARTING)

    def run(self, *argv: str) -> tuple[int, str]:
        """Run a program inside: its status and its output."""
        return jail_shell.ask(self.jail.edge, *argv)

    def sh(self, script: str) -> tuple[int, str]:
        """Run a shell script inside."""
        return self.run("/bin/sh", "-c", script)

    def python(self, code: str) -> tuple[int, str]:
        """Run Python inside."""
        return self.run("/usr/bin/python3", "-I", "-S", "-c", code)

    def advance_until(self, done: Callable[[], bool]) -> None:
        """Follow the jail until ``done``; TimeoutError after a minute."""
        deadline = time.monotonic() + START_S
        while not done():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the jail is {self.jail.phase}")
            advance(self.jail, 1.0)

    def end(self) -> str:
        """Kill it, unless it has ended, and reap it; how it ended."""
        if self.jail.phase is not Phase.ENDED:
            self.jail.kill()
            self.advance_until(lambda: self.jail.phase is Phase.ENDED)
        self.jail.close()
        return self.jail.how

    def __enter__(self) -> "ShellJail":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def with_profile(**changes: object) -> Callable[[JailSpec], JailSpec]:
    """Change a profile's fields: for a jail that cannot be built."""

    def change(spec: JailSpec) -> JailSpec:
        return replace(spec, profile=replace(spec.profile, **changes))  # type: ignore[arg-type]

    return change


def alive(pid: int) -> bool:
    """Whether a process still runs (a zombie does not)."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        stat = Path(f"/proc/{pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] not in "ZX"
    return False
