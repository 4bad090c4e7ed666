"""Jails forked from a warm interpreter, as the spawner sees them.

    STARTING --Builder, Worker--> pid 1 is known, the guard is told, Go --Entered--> RUNNING
             --the socket ends with no word, as when the template dies--> once more, from the beginning
    STARTING or RUNNING --builder gone, pid 1 reaped--> ENDED

All the work is the builder's (:mod:`jail.template.building`), a process for each jail, so that any
number of jails can be built at once while this one thread waits for all of them.
"""

import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

from jail.host.edges import Edges
from jail.host.launcher import ExecStarter, HostUids, JailSpec, rlimits
from jail.host.messages import HostError, receive_message, send_message
from jail.host.profile import JailFds, args_bytes, arguments
from jail.host.running import Phase, readable
from jail.host.starting import FROM_BUILDER, Builder, BuildFailed, BuildJail, Entered, Go, Worker
from jail.host.syscalls import Machine
from jail.host.template import Template


class ForkStarter:
    """Starts jails by forks of a template. The process has to be a subreaper.

    Args:
        bwrap: its path.
        run_dir: a directory that only the spawner may enter, for a socket's first moment.
        uids: whom jails may run as.
        machine: for the filter.
        python, app: see :class:`jail.host.template.Template`.
    """

    def __init__(
        self,
        bwrap: Path,
        run_dir: Path,
        uids: HostUids,
        machine: Machine,
        python: str,
        app: Path,
    ) -> None:
        self._bwrap = str(bwrap)
        self._edges = Edges(run_dir)
        self.uids = uids
        self.plain = ExecStarter(bwrap, run_dir, uids, machine)
        self.template = Template(python, app, run_dir)

    def start(self, spec: JailSpec) -> "ForkedJail":
        """See :class:`jail.host.launcher.Starter`."""
        identity = self.uids.identity(spec.host_uid)
        began = time.monotonic()
        request = BuildJail(
            bwrap=self._bwrap,
            # a signal at the wrong moment leaves a child of bwrap's that waits for ever; without one
            # bwrap goes on, finds every descriptor of its maker's closed, and ends
            args=args_bytes(arguments(spec.profile, JailFds(), die_with_parent=False)),
            seccomp=self.plain.filter,
            uid=identity.uid if identity else -1,
            gid=identity.gid if identity else -1,
            limits=rlimits(spec.profile.limits),
            processes=spec.profile.limits.processes,
            program=spec.profile.program,
            cgroups=spec.cgroups,
            niceness=spec.niceness,
        )
        try:
            listener, edge = self._edges.pair()
            try:
                ask = partial(self._ask, spec.mount_fds)
                return ForkedJail(ask, request, listener, edge, began)
            except BaseException:
                listener.close()
                edge.close()
                raise
        except OSError as error:
            raise HostError(f"a jail could not be started: {error}") from None

    def reaped(self, pid: int) -> bool:
        """See :class:`jail.host.launcher.Starter`."""
        return self.template.reaped(pid)

    def close(self) -> None:
        """See :class:`jail.host.launcher.Starter`."""
        self.template.close()

    def _ask(self, mounts: Sequence[int], request: BuildJail, listener: socket.socket) -> socket.socket:
        """Have a builder made for a request; our end of the socket to it. Raises HostError, OSError."""
        conn, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            conn.setblocking(False)
            with ExitStack() as given:
                fds: list[int] = []
                for fd in mounts:
                    # opened anew: a second builder's bwrap must not begin where the first one's left off
                    fds.append(os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC))
                    given.callback(os.close, fds[-1])
                send_message(conn, request, listener.fileno(), fds)
            self.template.fork(end)
        except BaseException:
            conn.close()
            raise
        finally:
            end.close()
        return conn


class ForkedJail:
    """A jail started by :class:`ForkStarter`; see :class:`jail.host.running.RunningJail`."""

    def __init__(
        self,
        ask: Callable[[BuildJail, socket.socket], socket.socket],
        request: BuildJail,
        listener: socket.socket,
        edge: socket.socket,
        began: float,
    ) -> None:
        self.edge = edge
        self.phase = Phase.STARTING
        self.spawn_s = 0.0
        self.how = ""
        self.why = ""
        self.group: tuple[int, int] | None = None
        self.init_pidfd: int | None = None
        self._ask, self._request = ask, request
        self._listener: socket.socket | None = listener  # for a second try
        self._began = began
        self._init = 0
        self._builder: int | None = None
        self._stale: list[int] = []
        self._reaped = False
        self._released = False
        self._doomed = False
        self._conn: socket.socket | None = ask(request, listener)

    @property
    def pids(self) -> tuple[int, ...]:
        """The jail's pid 1: ours from its builder's end on."""
        return (self._init,) if self._init and not self._reaped else ()

    @property
    def init_pid(self) -> int:
        """See :class:`jail.host.running.RunningJail`."""
        return self._init

    @property
    def fds(self) -> tuple[int, ...]:
        """See :class:`jail.host.running.RunningJail`; changes with every step."""
        conn = self._conn.fileno() if self._conn is not None else None
        return tuple(fd for fd in (conn, self._builder, self.init_pidfd) if fd is not None)

    def step(self) -> None:
        """See :class:`jail.host.running.RunningJail`."""
        self._close_stale()
        while self._conn is not None and self._read(self._conn):
            pass
        if self._builder is not None and readable(self._builder):
            os.close(self._builder)
            self._builder = None
        self._look_at_end()

    def release(self) -> None:
        """See :class:`jail.host.running.RunningJail`."""
        if self._init and not self._released and not self._doomed and self._conn is not None:
            self._released = True
            with suppress(OSError):  # it died; its end follows
                send_message(self._conn, Go())

    def reaped(self, pid: int, status: int) -> None:
        """See :class:`jail.host.running.RunningJail`."""
        if pid != self._init or self._reaped:
            return
        self._reaped = True
        code = os.waitstatus_to_exitcode(status)
        self.how = f"exit {code}" if code >= 0 else f"signal {-code}"

    def kill(self) -> None:
        """See :class:`jail.host.running.RunningJail`."""
        self._doomed = True
        _kill(self.init_pidfd)
        if self._conn is not None:
            with suppress(OSError):  # the builder takes bwrap along when it finds this
                self._conn.shutdown(socket.SHUT_WR)

    def kill_hard(self) -> None:
        """See :class:`jail.host.running.RunningJail`: the builder too, whatever it is doing."""
        self.kill()
        _kill(self._builder)

    def close(self) -> None:
        """See :class:`jail.host.running.RunningJail`."""
        self.edge.close()
        self._drop_conn()
        for fd in (self._builder, self.init_pidfd):
            if fd is not None:
                os.close(fd)
        self._builder = self.init_pidfd = None
        self._close_stale()

    def _close_stale(self) -> None:
        while self._stale:
            os.close(self._stale.pop())

    def _read(self, conn: socket.socket) -> bool:
        """Take one message; whether there may be more."""
        try:
            received = receive_message(conn, FROM_BUILDER)
        except BlockingIOError:
            return False
        except ConnectionResetError:  # it ended with something unread: nobody took the request
            received = None
        except (HostError, OSError) as error:
            self.why = f"the builder broke off: {error}"
            received = None
        if received is None:
            self._on_conn_end()
            return False
        message, fd = received
        match message:
            case Builder() if fd is not None and self._builder is None:
                self._builder = fd
            case Worker(pid=pid) if fd is not None and self.init_pidfd is None:
                self._init, self.init_pidfd = pid, fd
            case Entered() if fd is None and not self._doomed:
                self.phase = Phase.RUNNING
                self.spawn_s = time.monotonic() - self._began
            case BuildFailed(message=why) if fd is None:
                self.why = why
                self._doomed = True
            case _:
                if fd is not None:
                    os.close(fd)
        if self._doomed:
            self.kill()
        return True

    def _on_conn_end(self) -> None:
        # without a word of why: its builder was killed with the template, or none ever took the request
        wordless = not self._init and not self.why
        if self.phase is Phase.STARTING and wordless and not self._doomed and self._listener is not None:
            listener, self._listener = self._listener, None
            assert self._conn is not None
            # closed at the next step: a number that is watched must not become another's meanwhile
            self._stale = [self._conn.detach(), *([] if self._builder is None else [self._builder])]
            self._conn = self._builder = None
            try:
                self._conn = self._ask(self._request, listener)
            except (HostError, OSError) as error:
                self.why = str(error)
            listener.close()
        else:
            self.why = self.why or ("" if self._init or self._doomed else "its builder ended without a word")
            self._drop_conn()

    def _drop_conn(self) -> None:
        for sock in (self._conn, self._listener):
            if sock is not None:
                sock.close()
        self._conn = self._listener = None

    def _look_at_end(self) -> None:
        if self._conn is not None or self._builder is not None:
            return
        if self.init_pidfd is not None and not self._reaped:
            if not readable(self.init_pidfd):
                return
            # whoever reaps all children may have been faster than the message that named this one
            with suppress(ChildProcessError):
                found = os.waitid(os.P_PIDFD, self.init_pidfd, os.WEXITED | os.WNOHANG)
                if found is not None:
                    killed = found.si_code != os.CLD_EXITED
                    self.how = f"signal {found.si_status}" if killed else f"exit {found.si_status}"
            self._reaped = True
        self.phase = Phase.ENDED


def _kill(pidfd: int | None) -> None:
    if pidfd is not None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
