"""bwrap as the builder's child: builds the namespaces, holds them until they were entered."""

import fcntl
import os
import select
import signal
from contextlib import suppress
from typing import Final

from jail.host.profile import JailFds
from jail.host.running import gate_is_taken, parent_of
from jail.template.errors import BuildError

_BUILD_S: Final = 60  # the spawner's patience is shorter; this is for a spawner that hangs
_MAX_TEXT_BYTES: Final = 8_192
_ASIDE_FD: Final = 16  # above every number that bwrap is given
# reads what nobody ever writes: it is there until it is killed, or its maker ends
_HOLDER: Final = "/bin/cat"
_PROC: Final = b"rw,nosuid,nodev,noexec,relatime"
_MAX_MOUNTINFO_BYTES: Final = 1 << 16


class Bwrap:
    """One run of bwrap. Its stderr is read: no code of a user's runs in it."""

    def __init__(self, path: str, args: bytes, seccomp: bytes) -> None:
        fds = JailFds()
        status, status_end = os.pipe2(os.O_CLOEXEC)
        gate_end, gate = os.pipe2(os.O_CLOEXEC)
        said, said_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        hold_end, hold = os.pipe2(os.O_CLOEXEC)
        given = {
            0: hold_end, 2: said_end, fds.args: _memory("args", args),
            fds.seccomp: _memory("seccomp", seccomp), fds.status: status_end, fds.gate: gate_end,
        }  # fmt: skip
        # out of the way first: a source may have the number of another's target
        aside = {to: fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _ASIDE_FD) for to, fd in given.items()}
        self.pid = os.posix_spawn(
            path, (path, "--args", str(fds.args), "--", _HOLDER), {},
            file_actions=[(os.POSIX_SPAWN_DUP2, fd, to) for to, fd in aside.items()],
            setsid=True,
            setsigdef=(signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ),
        )  # fmt: skip
        for fd in (*given.values(), *aside.values()):
            os.close(fd)
        self._status, self._gate, self._said, self._hold = status, gate, said, hold
        self.child_pidfd = -1
        self._child = 0

    def wait_until_built(self, conn: int) -> None:
        """Wait until all is mounted and the holder is next. BuildError if it fails, or ``conn`` ends."""
        poll = select.poll()
        poll.register(conn, select.POLLRDHUP)
        poll.register(self._status, select.POLLIN)
        text = b""
        while b"\n" not in text:  # it comes in pieces
            self._wait(poll, conn)
            data = os.read(self._status, _MAX_TEXT_BYTES)
            if not data or len(text) > _MAX_TEXT_BYTES:
                raise BuildError(self._why())
            text += data
        self._take_child(text)
        poll.unregister(self._status)
        with suppress(BrokenPipeError):  # it died, as is seen next
            os.write(self._gate, b"\n")
        poll.register(self._gate, 0)
        self._wait(poll, conn)
        if not gate_is_taken(self._gate):
            raise BuildError(self._why())

    def open_user_namespace(self) -> int:
        """The namespace that the jail's command is to live in; its parent owns all others."""
        fd = os.open(f"/proc/{self._child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        self._check_proc()
        # all that was read by number was the child's if it lives yet
        poll = select.poll()
        poll.register(self.child_pidfd, select.POLLIN)
        if poll.poll(0):
            raise BuildError(self._why())
        return fd

    def end(self) -> None:
        """Kill it and its child, and reap it."""
        signal.pidfd_send_signal(self.child_pidfd, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def _wait(self, poll: select.poll, conn: int) -> None:
        ready = dict(poll.poll(_BUILD_S * 1_000))
        if not ready:
            raise BuildError(f"bwrap was not done after {_BUILD_S} s")
        if conn in ready:
            raise BuildError("no longer wanted")

    def _take_child(self, status: bytes) -> None:
        try:
            pid = int(status.split(b'"child-pid":', 1)[1].split(b",", 1)[0].rstrip(b" }\n"))
        except (ValueError, IndexError):
            raise BuildError(self._why()) from None
        self.child_pidfd = os.pidfd_open(pid)
        # the number is bwrap's child as long as bwrap says so: a pid could have been used again
        if parent_of(pid) != self.pid:
            raise BuildError(self._why())
        self._child = pid

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

    def _why(self) -> str:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        try:
            said = os.read(self._said, _MAX_TEXT_BYTES).decode(errors="replace")
        except BlockingIOError:
            said = ""
        return f"bwrap said: {' '.join(said.split()) or 'nothing'}"


def _memory(name: str, data: bytes) -> int:
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
