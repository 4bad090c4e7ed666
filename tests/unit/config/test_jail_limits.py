"""Limits of jails: everybody's, a user's own, and what a home over its limit is told."""

import pytest

from core.config import parse_config
from core.errors import ConfigError
from core.limits import HomeBook, JailLimits, told_of_limit
from jail.host.messages import HomeMeasured
from jail.host.profile import Limits

MIB = 1 << 20


def test_a_user_has_their_own_where_it_is_set_and_everybodys_else() -> None:
    section = parse_config(
        "[jail]\nprocesses = 50\n[jail.users.ann]\nmemory_bytes = 268435456\ncpus = 1.5"
    ).jail
    limits = JailLimits(section)

    ann, bob = limits("ann"), limits("bob")

    assert (ann.memory_bytes, ann.cpus, ann.processes) == (256 * MIB, 1.5, 50)
    assert (bob.memory_bytes, bob.cpus, bob.processes) == (1 << 30, 0.0, 50)


def test_no_limit_can_be_a_users_own() -> None:
    assert JailLimits(parse_config("[jail.users.ann]\ndisk_bytes = 0").jail)("ann").disk_bytes == 0


def test_limits_change_at_a_reload() -> None:
    limits = JailLimits(parse_config("").jail)
    before = limits("ann")

    limits.use(parse_config("[jail]\ncpu_weight = 7").jail)

    assert (before.cpu_weight, limits("ann").cpu_weight) == (100, 7)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[jail]\nmemory_bytes = 1000", ":2: jail.memory_bytes: a jail needs at least 33554432"),
        ("[jail.users.ann]\nmemory_bytes = 1000", "jail.users.ann.memory_bytes: a jail needs at least"),
        ("[jail.users.ann]\ncpu = 1", "jail.users.ann.cpu: unknown key; did you mean cpus?"),
        ("[jail.users.Ann]\ncpus = 1", "jail.users.Ann"),
        ("[jail]\ncpu_weight = 0", "jail.cpu_weight"),
    ],
)
def test_what_no_jail_could_live_with_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_config(text)


def home(held: int, files: int, whole: bool = True) -> HomeMeasured:
    return HomeMeasured("ann", held, files, whole)


@pytest.mark.parametrize(
    ("measured", "told"),
    [
        (home(10 * MIB, 5), ""),
        (home(11 * MIB, 5), "your home holds 11 MiB, its limit is 10 MiB"),
        (home(1, 6), "your home holds 6 files, its limit is 5"),
        (
            home(1, 1, whole=False),
            "your home holds more names than are counted, or directories nested too deeply",
        ),
    ],
)
def test_a_home_is_told_by_what_it_is_over(measured: HomeMeasured, told: str) -> None:
    limits = JailLimits(parse_config(f"[jail]\ndisk_bytes = {10 * MIB}\ndisk_files = 5").jail)
    book = HomeBook(limits)
    assert book.excess("ann") == ""

    book.note(measured)

    assert book.excess("ann") == told
    assert book.excess("bob") == ""
    book.forget("ann")
    assert book.excess("ann") == ""


def test_without_limits_a_home_is_never_over() -> None:
    book = HomeBook(JailLimits(parse_config("[jail]\ndisk_bytes = 0\ndisk_files = 0").jail))

    book.note(home(1 << 40, 1 << 20))

    assert book.excess("ann") == ""


def test_a_user_is_told_which_limit_and_how_much_it_is() -> None:
    assert "ran out of memory" in told_of_limit("memory", 64 * MIB)
    assert "64 MiB" in told_of_limit("memory", 64 * MIB)
    assert "10 MiB" in told_of_limit("disk", 10 * MIB)


def test_the_built_in_values_are_those_of_the_configuration() -> None:
    assert JailLimits(parse_config("").jail)("ann") == Limits(disk_bytes=10 << 30, disk_files=200_000)
