"""Asking egress for what lies in a jail: bounded in time, number and size, and nobody waits."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing

import msgspec
import pytest

from jail.host import messages
from jail.host.loop import Loop, Timer
from jail.host.messages import (
    AskMounts,
    FromCore,
    HostError,
    MountsGiven,
    MountsRefused,
    StartJail,
)
from jail.host.mounts import MountFiles, Mounts
from tests.fakes.mount_files import memory_file


class Clock(Loop):
    """A loop whose time passes when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.timers: list[Timer] = []

    def later(self, delay_s: float, call: Callable[[], None]) -> Timer:
        self.timers.append(super().later(delay_s, call))
        return self.timers[-1]


class Asker:
    """Mounts, what went to egress, and what came of it."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.sent: list[AskMounts] = []
        self.down = ""
        self.mounts = Mounts(self.clock, self._send)
        self.took: list[MountFiles | str] = []

    def _send(self, question: AskMounts) -> None:
        if self.down:
            raise HostError(self.down)
        self.sent.append(question)

    def ask(self, user: str = "ann", names: tuple[str, ...] = ("a", "b")) -> int:
        return self.mounts.ask(user, names, self.took.append)

    def close(self) -> None:
        for files in self.took:
            if isinstance(files, MountFiles):
                files.close()
        self.clock.close()


@pytest.fixture
def it() -> Iterator[Asker]:
    with closing(Asker()) as made:
        yield made


def closed(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return True
    return False


def test_what_there_is_comes_to_who_asked(it: Asker) -> None:
    first, second = it.ask("ann"), it.ask("bob", ("a",))
    fds = memory_file("one"), memory_file("two")

    it.mounts.answered(MountsGiven(second, ("a",)), fds[:1])
    it.mounts.answered(MountsGiven(first, ("b",)), fds[1:])

    assert it.sent == [AskMounts(first, "ann", ("a", "b")), AskMounts(second, "bob", ("a",))]
    bobs, anns = it.took
    assert isinstance(anns, MountFiles)
    assert isinstance(bobs, MountFiles)
    assert (anns.names, anns.fds, bobs.names, bobs.fds) == (("b",), fds[1:], ("a",), fds[:1])
    assert os.lseek(fds[0], 0, os.SEEK_CUR) == 0  # nothing of it was read
    for timer in it.clock.timers:
        timer.run()
    assert len(it.took) == 2


def test_none_set_yet_is_an_answer_too(it: Asker) -> None:
    it.mounts.answered(MountsGiven(it.ask(), ()), ())

    (files,) = it.took
    assert isinstance(files, MountFiles)
    assert files.names == ()


def test_a_refusal_says_why_and_what_to_do(it: Asker) -> None:
    it.mounts.answered(MountsRefused(it.ask(), "the disk is full"), ())

    (why,) = it.took
    assert isinstance(why, str)
    assert "the disk is full; try again" in why


def test_no_answer_is_a_refusal_and_a_late_one_is_closed(it: Asker) -> None:
    request, fd = it.ask(), memory_file("late")

    it.clock.timers[0].run()
    it.mounts.answered(MountsGiven(request, ("a",)), (fd,))

    (why,) = it.took
    assert "did not answer in 10 s" in str(why)
    assert closed(fd)


def test_egress_that_ends_answers_everybody_at_once(it: Asker) -> None:
    it.ask()
    it.ask("bob")

    it.mounts.lose()

    assert ["has ended" in str(why) for why in it.took] == [True, True]


def test_egress_that_takes_no_question_is_told_of_at_once(it: Asker) -> None:
    it.down = "the egress process does not run"

    with pytest.raises(HostError, match="does not run; try again"):
        it.ask()


def test_one_that_nobody_wants_any_more_is_closed(it: Asker) -> None:
    request, fd = it.ask(), memory_file("unwanted")

    it.mounts.drop(request)
    it.mounts.answered(MountsGiven(request, ("a",)), (fd,))
    it.mounts.lose()

    assert closed(fd)
    assert it.took == []


@pytest.mark.parametrize(
    ("names", "texts", "sealed"),
    [
        (("c",), ("x",), True),
        (("a", "b"), ("x",), True),
        ((), ("x",), True),
        (("a", "a"), ("x", "y"), True),
        (("a",), ("x",), False),
        (("a",), ("x" * 8_193,), True),
    ],
)
def test_an_answer_that_does_not_fit_is_closed_and_no_jail_starts(
    it: Asker, names: tuple[str, ...], texts: tuple[str, ...], sealed: bool
) -> None:
    fds = tuple(memory_file(text, sealed=sealed) for text in texts)

    it.mounts.answered(MountsGiven(it.ask(), names), fds)

    assert [isinstance(why, str) for why in it.took] == [True]
    assert all(closed(fd) for fd in fds)


def test_what_is_no_memory_file_is_refused(it: Asker) -> None:
    it.mounts.answered(MountsGiven(it.ask(), ("a",)), (os.open("/etc", os.O_RDONLY),))

    assert "not sealed" in str(it.took[0])


@pytest.mark.parametrize("message", [AskMounts(1, "ann", ("a",)), MountsGiven(1, ("a",))])
def test_core_cannot_say_anything_of_mounts(message: msgspec.Struct) -> None:
    data = msgspec.msgpack.encode(message)
    assert msgspec.msgpack.decode(data, type=messages.ToEgress | messages.FromEgress) == message

    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(data, type=FromCore)


def test_nor_can_a_start_name_one() -> None:
    start = msgspec.to_builtins(StartJail(1, "ann", 0))
    assert msgspec.convert(start, FromCore) == StartJail(1, "ann", 0)

    for more in ("mounts", "names", "files"):
        with pytest.raises(msgspec.ValidationError, match="unknown field"):
            msgspec.convert({**start, more: ["signing-key"]}, FromCore)
