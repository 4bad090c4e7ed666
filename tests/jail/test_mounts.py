"""A credential that the operator lets lie in a jail: it is there, read-only, and nowhere else."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from jail.host.messages import MAX_MOUNTS
from jail.host.profile import Limits
from tests.fakes.jails import House, ShellJail
from tests.fakes.mount_files import memory_file, with_mounts
from tests.fakes.search import Needles
from tests.jail.conftest import Enter

VALUE = "mount-canary-0f1e2d3c4b5a69788796"
OTHER = "mount-canary-a1b2c3d4e5f60718293a"
PLACE = "/run/credentials/signing-key"


@pytest.fixture
def given() -> Iterator[tuple[int, ...]]:
    """The values as egress hands them over."""
    fds = (memory_file(VALUE), memory_file(OTHER))
    yield fds
    for fd in fds:
        os.close(fd)


@pytest.fixture
def mounted(enter: Enter, given: tuple[int, ...]) -> ShellJail:
    """Alice's jail with two of them in it."""
    return enter("alice", change=with_mounts(("signing-key", "other.key"), given))


def test_it_lies_there_for_its_user_alone(house: House, mounted: ShellJail) -> None:
    assert mounted.sh(f"cat {PLACE}") == (0, VALUE)
    assert mounted.sh("cat /run/credentials/other.key") == (0, OTHER)
    assert mounted.sh("ls -A /run /run/credentials") == (
        0, "/run:\ncredentials\n\n/run/credentials:\nother.key\nsigning-key\n",
    )  # fmt: skip
    assert mounted.sh(f"stat -c '%a %u %g' {PLACE}") == (0, "400 1000 1000\n")
    outside = Path(f"/proc/{mounted.jail.init_pid}/root{PLACE}").stat()
    assert stat.S_IMODE(outside.st_mode) == 0o400
    assert outside.st_uid == (house.uid("alice") or os.geteuid())


@pytest.mark.parametrize("user", ["alice", "bob"])
def test_without_the_option_there_is_no_such_place(enter: Enter, mounted: ShellJail, user: str) -> None:
    jail = enter(user)

    assert jail.run("ls", "/run")[0] != 0
    assert VALUE not in jail.sh(f"cat {PLACE}; cat /proc/*/root{PLACE}; grep run /proc/self/mountinfo")[1]
    assert mounted.sh(f"cat {PLACE}") == (0, VALUE)


@pytest.mark.parametrize(
    "act",
    [
        f"echo other > {PLACE}", f"echo more >> {PLACE}", f"truncate -s 0 {PLACE}", f"chmod 600 {PLACE}",
        f"rm -f {PLACE}", f"mv {PLACE} /tmp/away", f"ln {PLACE} /tmp/link", f"cp -f /etc/passwd {PLACE}",
        f"mv /etc/passwd {PLACE}", "mv /run/credentials /run/gone", "touch /run/credentials/another",
        "rm -rf /run", "mkdir /run/other", f"mount -o remount,rw,bind {PLACE}", f"umount {PLACE}",
        f"setpriv --reuid 0 cat {PLACE}",
    ],
)  # fmt: skip
def test_it_can_be_neither_written_nor_replaced(mounted: ShellJail, act: str) -> None:
    assert mounted.sh(act)[0] != 0
    assert mounted.sh(f"cat {PLACE}") == (0, VALUE)


def test_the_user_may_copy_it_which_is_what_a_mount_gives_up(mounted: ShellJail) -> None:
    assert mounted.sh(f"cp {PLACE} /tmp/copy && cat /tmp/copy") == (0, VALUE)


def test_no_descriptor_of_it_is_left_in_the_jail(mounted: ShellJail, enter: Enter) -> None:
    bare = enter("bob")
    for jail in (mounted, bare):
        assert jail.run("true") == (0, "")  # its connection is accepted
    with_it, without = (sorted(os.listdir(f"/proc/{jail.jail.init_pid}/fd")) for jail in (mounted, bare))

    assert with_it == without
    assert Needles(VALUE).in_descriptors(mounted.jail.init_pid) == []
    control = os.open(f"/proc/{mounted.jail.init_pid}/root{PLACE}", os.O_RDONLY)
    assert len(Needles(VALUE).in_descriptors(os.getpid())) >= 1
    os.close(control)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may read the memory of these processes")
def test_it_is_in_the_memory_of_none_that_built_the_jail(house: House, mounted: ShellJail) -> None:
    needles = Needles(VALUE)
    template = house.starters["fork"].template.pid  # type: ignore[union-attr]
    assert template is not None
    assert Needles("jail.template").in_memory(template)

    assert not needles.in_memory(template)
    assert not needles.in_memory(mounted.jail.init_pid)
    assert needles.in_descriptors(template) == []
    assert not any(needles.in_arguments(p) or needles.in_environment(p) for p in mounted.jail.pids)


def test_as_many_as_may_be_fit_beside_the_fewest_descriptors(enter: Enter) -> None:
    names = tuple(f"n{number}" for number in range(MAX_MOUNTS))
    fds = tuple(memory_file(f"value of {name}") for name in names)
    try:
        jail = enter("alice", limits=Limits(open_files=32), change=with_mounts(names, fds))
    finally:
        for fd in fds:
            os.close(fd)

    assert jail.sh("cat /run/credentials/*") == (0, "".join(f"value of {name}" for name in names))


def test_one_that_is_empty_or_long_is_as_it_is(enter: Enter) -> None:
    fds = memory_file(""), memory_file("x" * 8_192)
    try:
        jail = enter("alice", change=with_mounts(("empty", "long"), fds))
    finally:
        for fd in fds:
            os.close(fd)

    assert jail.sh("wc -c < /run/credentials/empty; wc -c < /run/credentials/long") == (0, "0\n8192\n")
