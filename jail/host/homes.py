"""What users' homes hold on the disk: walked by a child, one home at a time, as often as it costs little.

Few file systems have project quotas on, so it is counted from outside. A home is written to while it is
counted and by a jail that wants to be counted wrong: every directory is opened by its name in the one above,
no link is followed, no other file system entered, and each of size, numbers of files and of names, and depth
has a bound, past which the home is over its limit whatever else is in it.
"""

import os
import signal
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from jail.host.loop import Loop, Timer
from jail.host.messages import HomeMeasured
from jail.host.process import FIRST_FD, die_with_parent, fork_quietly
from jail.host.profile import Limits, user_paths

_LIMIT_S: Final = 60.0
_MAX_DEPTH: Final = 200
_MAX_FILES: Final = 2_000_000  # where no limit is set
_MAX_NAMES: Final = 4_000_000
"""A name costs time even where its file was counted: without a bound many names of few files take longer than
a walk may, and the home would never be counted."""
_NICE: Final = 10
_REST: Final = 20.0
"""Between two walks of a home are so many times what one took: a large home is looked at less often."""
_MAX_WAITING: Final = 1_024
_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_BLOCK_BYTES: Final = 512  # of st_blocks, whatever the file system's are


@dataclass(slots=True)
class _Walk:
    user: str
    limits: Limits
    began_s: float
    pid: int
    pipe: int
    timer: Timer
    said: bytes = b""


class Homes:
    """The walks.

    Args:
        tell: is given each result; one that was cut short by a bound says ``whole`` False.
        late: is told whose home could not be walked in time: its limits do not hold.
    """

    def __init__(
        self,
        loop: Loop,
        data_dir: Path,
        tell: Callable[[HomeMeasured, Limits], None],
        late: Callable[[str], None],
    ) -> None:
        self._loop, self._data_dir, self._tell, self._late = loop, data_dir, tell, late
        self._waiting: dict[str, Limits] = {}
        self._rests_until_s: dict[str, float] = {}
        self._walk: _Walk | None = None

    def look(self, user: str, limits: Limits) -> None:
        """Have a home walked, unless it was just now; nothing happens without a limit on it."""
        now_s = time.monotonic()
        wanted = bool(limits.disk_bytes or limits.disk_files)
        walked = self._walk is not None and self._walk.user == user
        if not wanted or walked or now_s < self._rests_until_s.get(user, 0.0):
            return
        if len(self._waiting) < _MAX_WAITING:
            self._waiting[user] = limits
        self._next()

    def forget(self, user: str) -> None:
        """A user is being removed."""
        self._waiting.pop(user, None)
        self._rests_until_s.pop(user, None)
        if self._walk is not None and self._walk.user == user:
            self._kill()
            self._end(self._walk)  # what it found is nobody's, or a namesake's
            self._next()

    def close(self) -> None:
        """Give up what is being walked and what waits."""
        self._waiting.clear()
        self._rests_until_s.clear()
        if self._walk is not None:
            self._kill()
            self._end(self._walk)

    def _next(self) -> None:
        while self._waiting and self._walk is None:
            user = next(iter(self._waiting))
            self._begin(user, self._waiting.pop(user))

    def _begin(self, user: str, limits: Limits) -> None:
        home, parent = user_paths(self._data_dir, user).home, os.getpid()
        try:
            reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return  # the next look at it tries again
        try:
            pid = fork_quietly()
        except OSError:
            os.close(reading)
            os.close(writing)
            return
        if pid == 0:
            _walk(home, limits, writing, parent)
        os.close(writing)
        timer = self._loop.later(_LIMIT_S, self._on_late)
        self._walk = _Walk(user, limits, time.monotonic(), pid, reading, timer)
        self._loop.watch(reading, self._on_words)

    def _on_words(self) -> None:
        walk = self._walk
        assert walk is not None
        try:
            data = os.read(walk.pipe, 1_024)
        except BlockingIOError:
            return
        walk.said += data
        if data:
            return
        self._end(walk)
        now_s = time.monotonic()
        self._rests_until_s = {user: s for user, s in self._rests_until_s.items() if s > now_s}
        self._rests_until_s[walk.user] = now_s + (now_s - walk.began_s) * _REST
        with suppress(msgspec.DecodeError):  # it was killed: the next look at it tries again
            held, files, whole = msgspec.json.decode(walk.said, type=tuple[int, int, bool])
            self._tell(HomeMeasured(walk.user, held, files, whole), walk.limits)
        self._next()

    def _end(self, walk: _Walk) -> None:
        self._walk = None
        self._loop.forget(walk.pipe)
        os.close(walk.pipe)
        walk.timer.cancel()

    def _on_late(self) -> None:
        if self._walk is not None:
            self._late(self._walk.user)
            self._kill()

    def _kill(self) -> None:
        # reaped by the spawner with all its children, but not before its end of the pipe was read
        if self._walk is not None:
            with suppress(ProcessLookupError):
                os.kill(self._walk.pid, signal.SIGKILL)


def weigh(home: Path, limits: Limits) -> tuple[int, int, bool]:
    """Bytes and files below a home, and whether that is all of it: it stops where a limit is passed by far.

    A file with several names counts once. A directory that may not be read counts for itself alone; root
    may read all of them. Raises OSError where the home itself cannot be opened.
    """
    sum_ = _Sum(2 * limits.disk_bytes or 1 << 62, 2 * limits.disk_files or _MAX_FILES)
    fd: int | None = os.open(home, _OPEN)
    sum_.device = os.fstat(fd).st_dev if fd is not None else 0
    stack: list[tuple[int, list[str]]] = []
    try:
        while fd is not None and len(stack) < _MAX_DEPTH:
            stack.append((fd, []))
            if not sum_.add(fd, stack[-1][1]):
                return sum_.held_bytes, sum_.files, False
            fd = _deeper(stack)
        if fd is not None:
            os.close(fd)
        return sum_.held_bytes, sum_.files, fd is None
    finally:
        for opened, _ in stack:
            os.close(opened)


@dataclass(slots=True)
class _Sum:
    most_bytes: int
    most_files: int
    held_bytes: int = 0
    files: int = 0
    names: int = 0
    device: int = 0
    linked: set[int] = field(default_factory=set)

    def add(self, fd: int, directories: list[str]) -> bool:
        """Add what stands in an open directory, and name the directories in it; False past a bound."""
        with os.scandir(fd) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # it is gone meanwhile
                    if self._is_directory(entry.stat(follow_symlinks=False)):
                        directories.append(entry.name)
                self.names += 1
                if (
                    self.held_bytes > self.most_bytes
                    or self.files > self.most_files
                    or self.names > _MAX_NAMES
                ):
                    return False
        return True

    def _is_directory(self, info: os.stat_result) -> bool:
        """Add one; whether it is a directory to go into."""
        if stat.S_ISDIR(info.st_mode):
            inside = info.st_dev == self.device
        else:
            inside = False
            if info.st_nlink > 1:
                if info.st_ino in self.linked:
                    return False
                self.linked.add(info.st_ino)
        self.held_bytes += info.st_blocks * _BLOCK_BYTES
        self.files += 1
        return inside


def _deeper(stack: list[tuple[int, list[str]]]) -> int | None:
    """Open the next directory, closing those that are done; None at the end."""
    while stack:
        fd, names = stack[-1]
        while names:
            with suppress(OSError):  # it is gone, became a link, or is shut
                return os.open(names.pop(), _OPEN, dir_fd=fd)
        stack.pop()
        os.close(fd)
    return None


def _walk(home: Path, limits: Limits, writing: int, parent: int) -> NoReturn:
    """The child: never returns."""
    try:
        os.closerange(FIRST_FD, writing)
        os.closerange(writing + 1, os.sysconf("SC_OPEN_MAX"))
        die_with_parent(parent)
        os.nice(_NICE)
        os.write(writing, msgspec.json.encode(weigh(home, limits)))
    finally:
        os._exit(0)
