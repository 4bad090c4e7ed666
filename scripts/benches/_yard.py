"""A spawner's inner half for benchmarks: jails by its own launcher and table, in this process.

No core and no egress: the benchmark is whoever asks for jails, and gets their edges.
"""

import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from core.config import Config
from core.serve import spawner_config
from jail.host.jails import JailPlan, Jails
from jail.host.launcher import HostUids
from jail.host.layout import Layout, Owners
from jail.host.loop import Loop
from jail.host.messages import JailExited, JailFailed, JailStarted, Start, StartJail, ToCore
from jail.host.mounts import Mounts
from jail.host.process import Identity, Program, become_subreaper, start
from jail.host.profile import user_paths
from jail.host.staging import stage
from jail.host.starters import make_starter

SOURCE = Path(__file__).resolve().parents[2]
_LIMIT_S = 60.0
_FIRST_USER = 1_000  # past uid_base, as in core.users

OnStarted = Callable[[int, socket.socket, float], None]
"""``(life, core's end of the edge, seconds until the worker's exec)``."""


class BenchError(Exception):
    """What was to be measured did not happen."""


class _Loop(Loop):
    """The spawner's loop, run in pieces."""

    def run_until(self, done: Callable[[], bool], limit_s: float = _LIMIT_S) -> None:
        """Run until ``done()``, looked at after every round; BenchError past the limit."""
        late = False

        def give_up() -> None:
            nonlocal late
            late = True

        timer = self.later(limit_s, give_up)
        while not done():
            if late:
                raise BenchError(f"not done in {limit_s:g} s")
            for key, _ in self._selector.select(self._wait_s()):
                if self._wanted(key):
                    key.data()
            self._run_timers()
        timer.cancel()


class Yard:
    """Jails and bare bwraps, all of them ended by :meth:`close`. Made by :func:`open_yard`.

    Args:
        directory: an empty one that other uids may enter.
        users: so many there are: ``user(0)`` and on.
        command: what runs in jails instead of the worker.
        starts: how jails can be started; the first is how they are until :meth:`use`.
    """

    def __init__(
        self,
        directory: Path,
        users: int,
        command: tuple[str, ...] = (),
        starts: tuple[Start, ...] = ("exec",),
    ) -> None:
        config = Config()
        self.ended: dict[int, str] = {}
        """How each jail ended, by life."""
        self._data_dir = directory / "data"
        base = config.jail.uid_base
        root = os.geteuid() == 0
        owners = Owners(Identity(base, base), Identity(base + 1, base + 1)) if root else None
        layout = Layout(self._data_dir, owners)
        layout.prepare()
        self._held = ExitStack()
        staged = stage(self._data_dir, SOURCE)
        self._held.callback(staged.close)
        spawner = spawner_config(config, self._data_dir, staged, owners)
        self._bwrap = str(spawner.bwrap)
        self._uids = [base + _FIRST_USER + n if root else 0 for n in range(users)]
        for number, uid in enumerate(self._uids):
            layout.prepare_user(self.user(number), uid)
        self.loop = _Loop()
        become_subreaper()
        self._tables: dict[Start, Jails] = {}
        for way in starts:
            spawner = replace(spawner, start=way)
            starter = make_starter(spawner, layout.run_dir, HostUids(spawner.user_uids))
            self._held.callback(starter.close)
            plan = JailPlan(
                self._data_dir, spawner.system, spawner.lib, spawner.etc, spawner.limits,
                spawner.max_alive, config.starting_at_once(way), command,
            )  # fmt: skip
            self._tables[way] = Jails(
                self.loop, starter, plan, self._send,
                lambda _pidfd: None, lambda _group: None, lambda _event, _values: None, lambda: None,
                Mounts(self.loop, lambda _: None),
            )  # fmt: skip
        self._jails = self._tables[starts[0]]
        self._on_started: dict[int, OnStarted] = {}
        self._bare: dict[int, Callable[[], None]] = {}
        self._lives = 0
        self._closing = False
        self.loop.on_signal(signal.SIGCHLD, self._reap)

    def use(self, way: Start) -> None:
        """Start jails in this way from now on; none may be alive."""
        self._jails = self._tables[way]

    @staticmethod
    def user(number: int) -> str:
        """A user's id."""
        return f"bench{number}"

    def home(self, number: int) -> Path:
        """A user's home on the host."""
        return user_paths(self._data_dir, self.user(number)).home

    def give(self, number: int, path: Path) -> None:
        """Make a file in a user's home theirs."""
        if self._uids[number]:
            os.chown(path, self._uids[number], self._uids[number])

    def start(self, number: int, on_started: OnStarted) -> int:
        """Ask for a user's jail, as core does; returns its life."""
        self._lives += 1
        self._on_started[self._lives] = on_started
        self._jails.start(StartJail(self._lives, self.user(number), self._uids[number]))
        return self._lives

    def end(self, lives: list[int]) -> None:
        """Kill jails and wait for them."""
        for life in lives:
            self._jails.kill(life)
        self.loop.run_until(lambda: all(life in self.ended for life in lives))

    def start_bare(self, number: int, command: tuple[str, ...], on_end: Callable[[], None]) -> int:
        """Start the least bwrap that isolates, as a user's uid; returns its pid."""
        argv = (
            self._bwrap, "--unshare-all", "--dev", "/dev", "--proc", "/proc", "--ro-bind", "/usr", "/usr",
            "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--die-with-parent",
            "--", *command,
        )  # fmt: skip
        uid = self._uids[number]
        pid = start(Program(argv=argv, identity=Identity(uid, uid) if uid else None))
        self._bare[pid] = on_end
        return pid

    def end_bare(self, pids: list[int]) -> None:
        """Kill bare bwraps and wait for them."""
        for pid in pids:
            if pid in self._bare:
                os.kill(pid, signal.SIGKILL)
        self.loop.run_until(lambda: not any(pid in self._bare for pid in pids))

    def close(self) -> None:
        """End everything and give back what is held."""
        self._closing = True
        try:
            self._jails.kill_all()
            self.end_bare(list(self._bare))
            self.loop.run_until(lambda: not self._jails)
        finally:
            become_subreaper(False)
            self.loop.close()
            self._held.close()

    def _send(self, message: ToCore, fd: int | None) -> None:
        match message:
            case JailStarted(life=life, spawn_s=spawn_s) if fd is not None:
                self._on_started.pop(life)(life, socket.socket(fileno=fd), spawn_s)
            case JailFailed() if self._closing:
                pass
            case JailFailed(message=text):
                raise BenchError(f"no jail: {text}")
            case JailExited(life=life, how=how):
                self.ended[life] = how
            case _:
                raise BenchError(f"unexpected {type(message).__name__}")

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if not self._jails.reaped(pid, status) and (on_end := self._bare.pop(pid, None)):
                on_end()


@contextmanager
def open_yard(
    users: int, command: tuple[str, ...] = (), starts: tuple[Start, ...] = ("exec",)
) -> Iterator[Yard]:
    """A yard in a temporary directory. On the main thread, of a process without other children."""
    directory = make_directory()
    try:
        yard = Yard(directory, users, command, starts)
        try:
            yield yard
        finally:
            yard.close()
    finally:
        shutil.rmtree(directory)


def make_directory() -> Path:
    """A temporary directory that jails of other uids may pass through when we are root."""
    if os.geteuid() != 0:
        return Path(tempfile.mkdtemp(prefix="certosa-bench-"))
    directory = Path(tempfile.mkdtemp(prefix="certosa-bench-", dir="/var/lib"))
    directory.chmod(0o711)
    return directory


def now_ms() -> float:
    """A monotonic clock in milliseconds."""
    return time.perf_counter() * 1_000
