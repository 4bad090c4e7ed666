"""What core and the spawner say to each other: one datagram a message on a SEQPACKET pair.

Core's requests are small and typed. Core names a user, never a path and never a program: the
spawner derives both (see :mod:`jail.host.profile`), so a core that was taken over can start and
stop jails, and nothing else.
"""

import array
import socket
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from jail.host.measure import ProcessUse
from jail.wire.errors import CertosaError

UserId = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}\Z")]
Life = Annotated[int, Meta(ge=1)]
"""A jail's number, counted up by core; never used twice while core lives."""

CredentialName = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}\Z")]
"""Of a credential that may lie in a jail as a file: it is the file's name there."""

Start = Literal["fork", "exec"]
"""How a jail's worker comes to be: forked from a warm interpreter, or executed by bwrap."""

SPAWNER_EVENTS = (
    "core_started", "egress_started", "core_ended", "egress_ended", "template_ended", "guard_replaced",
    "jail_started", "jail_exited", "jail_failed", "jail_build_failed", "config_reloaded",
    "reload_failed",
)  # fmt: skip
"""What the spawner counts."""

MAX_MOUNTS = 8
"""Credentials that may lie in one jail as files."""

_MAX_DATAGRAM_BYTES = 16_384


class HostError(CertosaError):
    """The root of errors of what builds jails."""


class _Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    pass


class StartJail(_Message, frozen=True):
    """Start a jail for ``user`` as ``host_uid`` (0: the spawner is an ordinary user).

    ``request`` is the id of what it is for; the spawner's log names it.
    """

    life: Life
    user: UserId
    host_uid: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    request: Annotated[str, Meta(pattern=r"^(req_[0-9a-f]{24})?\Z")] = ""


class KillJail(_Message, frozen=True):
    """End a jail now: SIGKILL for all of it. JailExited follows."""

    life: Life


class PrepareUser(_Message, frozen=True):
    """Make a user's directories, owned as design.md 8 says; harmless when they exist."""

    request: int
    user: UserId
    host_uid: Annotated[int, Meta(ge=0, le=2**31 - 1)]


class RemoveUser(_Message, frozen=True):
    """Delete a user's directories, as the user's own uid; their jail must have ended."""

    request: int
    user: UserId
    host_uid: Annotated[int, Meta(ge=0, le=2**31 - 1)]


class JailStarted(_Message, frozen=True):
    """The jail's process runs; the datagram carries core's connected end of its edge."""

    life: Life
    spawn_s: float
    pid: int = 0  # the jail's first process as the host counts
    start: Start = "exec"  # how it was started


class JailFailed(_Message, frozen=True):
    """No jail was started: what to do about it stands in ``message``."""

    life: Life
    message: str


LimitMet = Literal["", "memory", "disk"]


class JailExited(_Message, frozen=True):
    """A started jail has ended and all its processes were reaped.

    ``met`` names the limit that ended it, of so many bytes.
    """

    life: Life
    how: str  # "exit 0", "signal 9"
    met: LimitMet = ""
    limit_bytes: int = 0


class UserReady(_Message, frozen=True):
    """PrepareUser or RemoveUser was done (``error`` empty) or failed."""

    request: int
    error: str


class EgressLink(_Message, frozen=True):
    """Egress was (re)started; the datagram carries core's end of the link to it."""


class Shutdown(_Message, frozen=True):
    """Stop: take no new turn, let running ones end within ``grace_s``, drain, exit 0."""

    grace_s: float


class MeasureJails(_Message, frozen=True):
    """Measure jails; JailsMeasured answers, without those that are gone."""

    lives: Annotated[tuple[Life, ...], Meta(max_length=64)]


class JailUse(msgspec.Struct, frozen=True):
    """What a jail's processes hold (proportional, in bytes) and have used of the CPU (in seconds)."""

    life: Life
    memory_bytes: int
    processes: int
    cpu_s: float
    private_bytes: int = 0  # of the memory, what no other process shares


class JailsMeasured(_Message, frozen=True):
    """What MeasureJails asked for."""

    jails: tuple[JailUse, ...]


class AskUse(_Message, frozen=True):
    """What the spawner itself uses and has counted. Answer: UseTold."""

    request: int


class UseTold(_Message, frozen=True):
    """``events``: how often what of SPAWNER_EVENTS happened since the server was started."""

    request: int
    use: ProcessUse
    events: dict[str, int]


class HomeMeasured(_Message, frozen=True):
    """What a user's home holds; ``whole`` False: and more, or nested deeper than is looked at."""

    user: UserId
    held_bytes: int
    files: int
    whole: bool


class Ping(_Message, frozen=True):
    """Say Pong: is anybody there?"""


class Pong(_Message, frozen=True):
    """The answer to Ping, from the loop that does the work."""


class AskMounts(_Message, frozen=True):
    """Give the values of ``names`` that may lie in a jail of this user's.

    MountsGiven or MountsRefused answers.
    """

    request: int
    user: UserId
    names: Annotated[tuple[CredentialName, ...], Meta(min_length=1, max_length=MAX_MOUNTS)]


class MountsGiven(_Message, frozen=True):
    """What there is of them: a sealed memory file each comes along, in this order."""

    request: int
    names: Annotated[tuple[CredentialName, ...], Meta(max_length=MAX_MOUNTS)]


class MountsRefused(_Message, frozen=True):
    """They cannot be had now; why stands in ``message``, for people."""

    request: int
    message: Annotated[str, Meta(max_length=1_000)]


class CoreReady(_Message, frozen=True):
    """Core serves: its listeners accept."""


class Handed(_Message, frozen=True):
    """A descriptor to use after the next Reload, by its flag at the start ("config"); it comes along."""

    name: str


class Reload(_Message, frozen=True):
    """Use what was handed over since the last one; all of it was checked."""


FromCore = StartJail | KillJail | PrepareUser | RemoveUser | MeasureJails | AskUse | CoreReady | Pong
ToCore = (
    JailStarted
    | JailFailed
    | JailExited
    | UserReady
    | JailsMeasured
    | UseTold
    | HomeMeasured
    | EgressLink
    | Shutdown
    | Handed
    | Reload
    | Ping
)
ToEgress = Handed | Reload | Ping | AskMounts
FromEgress = Pong | MountsGiven | MountsRefused


def send_message(
    sock: socket.socket, message: msgspec.Struct, fd: int | None = None, more: Sequence[int] = ()
) -> None:
    """Send one message, with a descriptor and more if given. Raises OSError; BlockingIOError when full."""
    fds = array.array("i", [*([] if fd is None else [fd]), *more])
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)] if fds else []
    sock.sendmsg([msgspec.msgpack.encode(message)], rights)


def receive_message(sock: socket.socket, kind: object) -> tuple[object, int | None] | None:
    """Receive one message of the union ``kind`` (or by a Decoder of it) and its descriptor; None at the end.

    Raises HostError for anything that isn't one; descriptors that came with it are closed.
    """
    received = receive_with_fds(sock, kind, 1)
    return received and (received[0], next(iter(received[1]), None))


def receive_with_fds(sock: socket.socket, kind: object, most: int) -> tuple[object, tuple[int, ...]] | None:
    """See :func:`receive_message`; with as many as ``most`` descriptors."""
    data, ancillary, flags, _ = sock.recvmsg(
        _MAX_DATAGRAM_BYTES, socket.CMSG_LEN(most * 4), socket.MSG_CMSG_CLOEXEC
    )
    fds = array.array("i")
    for level, type_, payload in ancillary:
        if level == socket.SOL_SOCKET and type_ == socket.SCM_RIGHTS:
            fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
    if not data and not fds:
        return None
    try:
        if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            raise HostError("a control message was cut off")
        decoder = kind if isinstance(kind, msgspec.msgpack.Decoder) else msgspec.msgpack.Decoder(kind)
        message: object = decoder.decode(data)
    except (HostError, msgspec.ValidationError, msgspec.DecodeError) as error:
        for fd in fds:
            socket.close(fd)
        raise HostError(f"not a control message: {error}") from None
    return message, tuple(fds)
