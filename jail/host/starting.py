"""What the spawner and the builder of one forked jail say to each other, on a SEQPACKET pair.

The template that forks builders reads none of it: what concerns one user must not be in the memory
that the next user's worker is forked from. So the spawner hands the template one end of a fresh pair
and nothing else, and the builder, itself forked already, reads its request from that.

    spawner -> builder   BuildJail, with the jail's listening socket, and a memory file for each mount
    builder -> spawner   Builder, with a pidfd of it; then Worker, with a pidfd of the jail's pid 1
    spawner -> worker    Go: the guard knows it
    worker -> spawner    Entered: all it had is given up and the program is next
    either  -> spawner   BuildFailed, and its end
"""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

Id = Annotated[int, Meta(ge=0, le=2**32 - 1)]


class _Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    pass


class BuildJail(_Message, frozen=True):
    """One jail to build.

    Args:
        bwrap: its path. args: its options, as ``--args`` reads them. seccomp: the filter.
        uid, gid: whom the jail runs as; -1: whoever the builder is, an ordinary user.
        limits: RLIMIT_ numbers and values, for bwrap and the worker. processes: RLIMIT_NPROC,
            counted in the jail. cgroups: cgroup.procs files, to be joined first of all. niceness: as
            nice(2) adds it.
        program: what the worker becomes.
    """

    bwrap: str
    args: bytes
    seccomp: bytes
    uid: Annotated[int, Meta(ge=-1, le=2**31 - 1)]
    gid: Annotated[int, Meta(ge=-1, le=2**31 - 1)]
    limits: tuple[tuple[int, int], ...]
    processes: int
    program: tuple[str, ...]
    cgroups: tuple[str, ...] = ()
    niceness: Annotated[int, Meta(ge=0, le=19)] = 0


class Builder(_Message, frozen=True):
    """The builder has begun; the datagram carries its pidfd."""


class Worker(_Message, frozen=True):
    """The jail's pid 1 was forked; the datagram carries its pidfd."""

    pid: int


class Go(_Message, frozen=True):
    """Whoever outlives the spawner knows of the worker: it may begin."""


class Entered(_Message, frozen=True):
    """Nothing but the program is left to run."""


class BuildFailed(_Message, frozen=True):
    """The jail could not be built; bwrap's own words are in ``message`` where it had any."""

    message: str


# made once: a fresh fork would make its own, out of fresh memory
TO_BUILDER: Final = msgspec.msgpack.Decoder(BuildJail | Go)
FROM_BUILDER: Final = msgspec.msgpack.Decoder(Builder | Worker | Entered | BuildFailed)
