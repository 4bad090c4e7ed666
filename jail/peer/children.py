"""Child processes of the worker: started, read, ended, reaped.

The worker is the jail's pid 1, so orphans become its children as well. One reaper waits for all
of them and hands a status to whoever started the process; nothing else in the worker may wait.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jail.peer.processes import kill_tree, now_s

_REAP_BATCH = 256
_READ_BYTES = 65_536
_TERM_GRACE_S = 1.0
_CANCEL_GRACE_S = 0.3  # a cancelled turn has to close within 2 s
_TAIL_S = 0.3  # how long output may come after the end: a grandchild can hold the pipe
_GONE_S = 0.5  # a killed process that is not gone by then hangs in the kernel


class Outcome(NamedTuple):
    """How a process ended: its exit status (negative: the signal), and whether we ended it."""

    status: int
    timed_out: bool
    flooded: bool


class _Child(NamedTuple):
    pid: int
    exited: "asyncio.Future[int]"
    output_fd: int
    started_s: float


class Children:
    """Owns every child. All of it runs on the loop's thread, which is the main thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._exits: dict[int, asyncio.Future[int]] = {}
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        loop.call_soon(self._reap)  # what ended before the handler was there

    async def run(
        self,
        argv: list[str],
        cwd: str,
        timeout_s: float,
        on_output: Callable[[bytes], bool],
        extra_env: Mapping[str, str] | None = None,
    ) -> Outcome:
        """Run a program in a session of its own until it and its output end.

        Its stdin is empty; stdout and stderr come mixed to ``on_output``, which returns False when
        that was too much: then the program is ended. What it leaves in its session is killed.
        Cancelling kills the whole tree. Raises OSError where it can't be started.
        """
        child = self._start(argv, cwd, extra_env)
        reader = _Reader(self._loop, child.output_fd, on_output)
        timed_out = False
        try:
            ends: set[asyncio.Future[Any]] = {child.exited, reader.flooded}
            await asyncio.wait(ends, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if child.exited.done():
                kill_tree(child.pid, orphans_since_s=None)
            else:
                timed_out = not reader.flooded.done()
                await self._end(child, _TERM_GRACE_S)
            await asyncio.wait({reader.ended}, timeout=_TAIL_S)
        except asyncio.CancelledError:
            await self._end(child, _CANCEL_GRACE_S)
            raise
        finally:
            reader.close()
        status = child.exited.result() if child.exited.done() else -signal.SIGKILL
        return Outcome(status, timed_out, reader.flooded.done())

    def kill_all(self) -> None:
        """Kill every running tool's tree at once; the worker is about to exit."""
        for pid in list(self._exits):
            kill_tree(pid, orphans_since_s=0.0)

    def _start(self, argv: list[str], cwd: str, extra_env: Mapping[str, str] | None) -> _Child:
        started_s = now_s()
        read_fd, write_fd = os.pipe2(os.O_CLOEXEC)
        try:
            os.set_blocking(read_fd, False)
            process = subprocess.Popen(
                argv,
                cwd=cwd,
                env={**os.environ, **extra_env} if extra_env else None,
                stdin=subprocess.DEVNULL,
                stdout=write_fd,
                stderr=write_fd,
                start_new_session=True,
            )
        except BaseException:
            os.close(read_fd)
            raise
        finally:
            os.close(write_fd)
        _offer_to_oom_killer(process.pid)
        # the reaper waits, so Popen must not: it is told that all is over
        process.returncode = 0
        exited = self._loop.create_future()
        self._exits[process.pid] = exited
        return _Child(process.pid, exited, read_fd, started_s)

    async def _end(self, child: _Child, grace_s: float) -> None:
        """TERM to the group, KILL to the tree after a grace."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
        try:
            await asyncio.wait({child.exited}, timeout=grace_s)
        finally:
            # new orphans can be anybody's while another tool runs; otherwise they are its own
            others = self._exits.keys() - {child.pid}
            kill_tree(child.pid, orphans_since_s=None if others else child.started_s)
        await asyncio.wait({child.exited}, timeout=_GONE_S)

    def _reap(self) -> None:
        for _ in range(_REAP_BATCH):
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            exited = self._exits.pop(pid, None)
            if exited is not None and not exited.done():
                exited.set_result(os.waitstatus_to_exitcode(status))
        self._loop.call_soon(self._reap)


def _offer_to_oom_killer(pid: int) -> None:
    """Where memory runs out, a tool goes before the worker does (proc(5), oom_score_adj)."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/oom_score_adj", "w") as file:
        file.write("500")


class _Reader:
    """Reads a pipe until its end, or until ``on_output`` has had enough."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fd: int, on_output: Callable[[bytes], bool]) -> None:
        self._loop, self._fd, self._on_output = loop, fd, on_output
        self.ended: asyncio.Future[None] = loop.create_future()
        self.flooded: asyncio.Future[None] = loop.create_future()
        loop.add_reader(fd, self._read)

    def close(self) -> None:
        """Stop reading and close the pipe."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _read(self) -> None:
        try:
            data = os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._loop.remove_reader(self._fd)
            self.ended.set_result(None)
        elif not self._on_output(data) and not self.flooded.done():
            self._loop.remove_reader(self._fd)
            self.flooded.set_result(None)
            self.ended.set_result(None)
