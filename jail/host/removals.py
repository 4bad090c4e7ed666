"""Removing users' directories beside everything else: one child at a time, each with a limit."""

import os
import signal
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from jail.host.layout import Layout
from jail.host.loop import Loop, Timer
from jail.host.messages import HostError, RemoveUser, ToCore, UserReady
from jail.host.process import Identity, Program, start
from jail.host.removal import removal_steps

_MAX_WAITING: Final = 256
_STEP_S: Final = 600.0  # a home full of small files on a slow disk


@dataclass(slots=True)
class _Removal:
    request: RemoveUser
    steps: deque[Program]


class Removals:
    """The queue of users to remove; ``send`` gets one UserReady for each."""

    def __init__(self, loop: Loop, data_dir: Path, layout: Layout, send: Callable[[ToCore], None]) -> None:
        self._loop, self._data_dir, self._layout, self._send = loop, data_dir, layout, send
        self._queue: deque[_Removal] = deque()
        self._pid: int | None = None
        self._timer: Timer | None = None
        self._abandoned = False  # the child that runs belongs to nothing in the queue

    def removes(self, user: str) -> bool:
        """Whether this user is being removed, or waits for it."""
        return any(removal.request.user == user for removal in self._queue)

    def remove(self, request: RemoveUser, theirs: Identity | None, core: Identity | None) -> None:
        """Take a request. Raises HostError when it cannot be taken."""
        if len(self._queue) >= _MAX_WAITING:
            raise HostError("too many users are being removed; try again later")
        steps = removal_steps(self._data_dir, request.user, theirs, core)
        self._queue.append(_Removal(request, deque(steps)))
        if len(self._queue) == 1:
            self._next()

    def reaped(self, pid: int, status: int) -> bool:
        """Whether the child that was waited for is one of these."""
        if pid != self._pid:
            return False
        self._pid = None
        if self._timer is not None:
            self._timer.cancel()
        if self._abandoned:
            self._abandoned = False
            self._next_if_any()
        elif status == 0:
            self._next()
        else:
            self._finish("some of the files could not be deleted; try again")
        return True

    def kill_all(self) -> None:
        """Core is gone, nobody waits for an answer: stop; what is left is removed when asked again."""
        self._queue.clear()
        self._abandoned = self._pid is not None
        self._kill()

    def _next(self) -> None:
        removal = self._queue[0]
        if not self._layout.user_exists(removal.request.user):
            self._finish("")
        elif not removal.steps:
            try:
                self._layout.forget_user(removal.request.user)
            except HostError as error:
                self._finish(str(error))
            else:
                self._finish("")
        elif self._pid is None:  # one that was killed has to be reaped first
            try:
                self._pid = start(removal.steps.popleft())
            except HostError as error:
                self._finish(str(error))
                return
            self._timer = self._loop.later(_STEP_S, self._kill)

    def _finish(self, error: str) -> None:
        done = self._queue.popleft()
        self._send(UserReady(done.request.request, error))
        if self._queue:
            self._loop.later(0.0, self._next_if_any)

    def _next_if_any(self) -> None:
        if self._queue and self._pid is None:
            self._next()

    def _kill(self) -> None:
        if self._pid is not None:
            # the shell leads a session, and with it a group, of its own; not reaped, so its own
            os.killpg(self._pid, signal.SIGKILL)
