"""bwrap as the builder's child: builds the namespaces, holds them until they were entered."""

import fcntl
import os
import select
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from jail.host.messages import MAX_MOUNTS
from jail.host.profile import COMMAND_LINE, JailFds
from jail.host.running import gate_is_taken, parent_of, read_too
from jail.template.errors import BuildError

_BUILD_S: Final = 60  # the spawner's patience is shorter; this is for a spawner that hangs
_NAME_MS: Final = 10_000
_ENDED: Final = "bwrap ended before the jail was built"
_MAX_TEXT_BYTES: Final = 8_192
_ASIDE_FD: Final = JailFds().mounts + MAX_MOUNTS  # above every number that bwrap is given
# reads what nobody ever writes: it is there until it is killed, or its maker ends
_HOLDER: Final = "/bin/cat"
_PROC: Final = b"rw,nosuid,nodev,noexec,relatime"
_MAX_MOUNTINFO_BYTES: Final = 1 << 16


class Bwrap:
    """One run of bwrap. Its stderr is read: no code of a user's runs in it.

    Args:
        mounts: descriptors that the jail's mounts are made of; closed here.
    """

    def __init__(self, path: str, args: bytes, seccomp: bytes, mounts: Sequence[int] = ()) -> None:
        fds = JailFds()
        # one by one: a jail may have few descriptors, and the limit is set already
        aside = {to: _put_aside(fd) for to, fd in enumerate(mounts, fds.mounts)}
        status, once = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        status_end = read_too(once)
        gate_end, gate = os.pipe2(os.O_CLOEXEC)
        said, said_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        hold_end, hold = os.pipe2(os.O_CLOEXEC)
        given = {
            0: hold_end, 2: said_end, fds.args: _memory("args", args),
            fds.seccomp: _memory("seccomp", seccomp), fds.status: status_end, fds.gate: gate_end,
        }  # fmt: skip
        aside |= {to: _put_aside(fd) for to, fd in given.items()}
        self.pid = os.posix_spawn(
            path, (path, *COMMAND_LINE, "--", _HOLDER), {},
            file_actions=[(os.POSIX_SPAWN_DUP2, fd, to) for to, fd in aside.items()],
            setsid=True,
            setsigdef=(signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ),
        )  # fmt: skip
        for fd in aside.values():
            os.close(fd)
        self._status, self._gate, self._said, self._hold = status, gate, said, hold
        self.child_pidfd = -1
        self._child = 0
        self._text = b""

    def wait_until_built(self, conn: int) -> None:
        """Wait until all is mounted and the holder is next. BuildError if it fails, or ``conn`` ends."""
        poll = select.poll()
        poll.register(conn, select.POLLRDHUP)
        poll.register(self._status, select.POLLIN)
        while not self._child:
            self._wait(poll, conn)
            self._read_status()
        poll.unregister(self._status)
        try:
            os.write(self._gate, b"\n")
        except BrokenPipeError:
            raise BuildError(_ENDED) from None
        poll.register(self._gate, 0)
        self._wait(poll, conn)
        if not gate_is_taken(self._gate):
            raise BuildError(_ENDED)

    def open_user_namespace(self) -> int:
        """The namespace that the jail's command is to live in; its parent owns all others."""
        fd = os.open(f"/proc/{self._child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        self._check_proc()
        # all that was read by number was the child's if it lives yet
        poll = select.poll()
        poll.register(self.child_pidfd, select.POLLIN)
        if poll.poll(0):
            raise BuildError(_ENDED)
        return fd

    def leave(self) -> None:
        """Kill its child; it ends for that, and is reaped by whoever is given our children."""
        signal.pidfd_send_signal(self.child_pidfd, signal.SIGKILL)

    def end(self) -> None:
        """Kill it and its child, and reap it; before it has named its child this waits for that."""
        poll = select.poll()
        poll.register(self._status, select.POLLIN)
        with suppress(BuildError):
            while not self._child and poll.poll(_NAME_MS):
                self._read_status()
        with suppress(ProcessLookupError):
            if self.child_pidfd >= 0:
                signal.pidfd_send_signal(self.child_pidfd, signal.SIGKILL)
            else:
                os.killpg(self.pid, signal.SIGKILL)  # it has ended, or will never say anything
        os.waitpid(self.pid, 0)

    def _wait(self, poll: select.poll, conn: int) -> None:
        ready = dict(poll.poll(_BUILD_S * 1_000))
        if not ready:
            raise BuildError(f"bwrap was not done after {_BUILD_S} s")
        if conn in ready:
            raise BuildError("no longer wanted")

    def _read_status(self) -> None:
        """Take what is there; the child's pid comes in pieces. BuildError where it will not come."""
        data = os.read(self._status, _MAX_TEXT_BYTES)
        self._text += data
        if not data or len(self._text) > _MAX_TEXT_BYTES:
            raise BuildError(_ENDED)
        if b"\n" not in self._text:
            return
        try:
            pid = int(self._text.split(b'"child-pid":', 1)[1].split(b",", 1)[0].rstrip(b" }\n"))
            pidfd = os.pidfd_open(pid)
            # the number is bwrap's child as long as bwrap says so: a pid could have been used again
            if parent_of(pid) != self.pid:
                os.close(pidfd)
                raise BuildError(_ENDED)
        except (ValueError, IndexError, OSError):
            raise BuildError(_ENDED) from None
        self._child, self.child_pidfd = pid, pidfd

    def _check_proc(self) -> None:
        """/proc in the jail must be what replaces it: one mount, with nothing mounted over parts of it."""
        fd = os.open(f"/proc/{self._child}/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
        text = b""
        while data := os.read(fd, _MAX_MOUNTINFO_BYTES):
            text += data
        os.close(fd)
        mounts = [line.split(b" ", 6)[4:6] for line in text.splitlines()]
        found = [mount for mount in mounts if mount[0].startswith(b"/proc")]
        if found != [[b"/proc", _PROC]]:
            raise BuildError(f"/proc in the jail is not as expected: {found}")

    def said(self) -> str:
        """Its own words, on one line; to be asked after its end."""
        try:
            said = os.read(self._said, _MAX_TEXT_BYTES).decode(errors="replace")
        except BlockingIOError:
            said = ""
        return " ".join(said.split()) or "nothing"


def _put_aside(fd: int) -> int:
    """Out of the way: a source may have the number of another's target."""
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _ASIDE_FD)
    finally:
        os.close(fd)


def _memory(name: str, data: bytes) -> int:
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
