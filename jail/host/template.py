"""The spawner's end of the template: a warm interpreter that forks builders.

It is started by exec, never forked from the spawner, so nothing of the spawner's is in its memory,
and it is told nothing but descriptors (:mod:`jail.host.starting` says why). It runs no code of a
user's, so it dies with the spawner without a guard.
"""

import os
import signal
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final

from jail.host.messages import HostError
from jail.host.process import Program, start
from jail.host.profile import ENVIRONMENT, WORKER

_SCRIPT: Final = "jail/template/start.py"
_SCRIPT_PATH: Final = "/proc/self/fd/4"


class Template:
    """One process, started at the first request and again when it has died.

    Args:
        python: the interpreter of jails.
        app: the staged code (:mod:`jail.host.staging`), with the jails' ``lib`` beside it.
        run_dir: a directory that only the spawner may enter; for a rehearsal's sockets.
    """

    def __init__(self, python: str, app: Path, run_dir: Path) -> None:
        self._python, self._app, self._run_dir = python, app, run_dir
        self._control: socket.socket | None = None
        self.pid: int | None = None

    def warm(self) -> None:
        """Start it if it isn't there. Raises HostError."""
        if self.pid is not None:
            return
        if self._control is not None:
            self._control.close()
        control, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        fds: list[int] = []
        try:
            fds.append(os.open(self._app / _SCRIPT, os.O_RDONLY | os.O_CLOEXEC))
            fds.append(os.open(self._run_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        except OSError as error:
            control.close()
            end.close()
            for fd in fds:
                os.close(fd)
            raise HostError(f"{error.filename}: {error.strerror}") from None
        # as long as a worker's, which is written over it in each worker
        padded = _SCRIPT_PATH.rjust(len(WORKER[-1]), "/")
        try:
            self.pid = start(
                Program(
                    argv=(self._python, *WORKER[:-1], padded),
                    env={**ENVIRONMENT, "PWD": ENVIRONMENT["HOME"]},
                    fds=(end.fileno(), *fds),
                )
            )
        except HostError:
            control.close()
            raise
        finally:
            end.close()
            for fd in fds:
                os.close(fd)
        control.setblocking(False)
        self._control = control

    def fork(self, conn: socket.socket) -> None:
        """Have it fork once, and give the fork ``conn``. Raises HostError."""
        for again in (True, False):
            self.warm()
            assert self._control is not None
            try:
                socket.send_fds(self._control, [b"+"], [conn.fileno()])
                return
            except BlockingIOError:
                raise HostError("the template does not take requests") from None
            except OSError as error:
                # it has died and its end is not yet seen
                self._reap()
                if not again:
                    raise HostError(f"the template does not live: {error.strerror}") from None

    def reaped(self, pid: int) -> bool:
        """Whether the child that was waited for is this one; the next request starts another."""
        if pid != self.pid:
            return False
        self.pid = None
        return True

    def close(self) -> None:
        """End it, and reap it."""
        if self._control is not None:
            self._control.close()
            self._control = None
        self._reap()

    def _reap(self) -> None:
        pid, self.pid = self.pid, None
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
