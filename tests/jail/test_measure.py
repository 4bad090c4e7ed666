"""What a tree of processes holds and has used, as the spawner measures it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jail.host.loop import Loop
from jail.host.measure import Use, measure
from jail.host.measuring import Measuring, ToMeasure
from jail.host.messages import JailsMeasured, JailUse

_GREEDY = """
import subprocess, sys
held = bytearray(40 << 20)
child = subprocess.Popen([sys.executable, "-c", "held = bytearray(20 << 20); print(flush=True); input()"],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
sum(range(10_000_000))
print(flush=True)
input()
child.communicate(b"\\n")
"""


def test_a_tree_is_measured_with_its_children_and_is_nothing_once_it_ended() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _GREEDY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        used = measure([process.pid])
        assert used.processes == 2
        assert 60 << 20 < used.memory_bytes < 160 << 20
        assert used.cpu_s > 0
        twice = measure([process.pid, process.pid])
        assert twice.processes == 2
        process.communicate(b"\n")
    assert measure([process.pid]) == Use(0, 0, 0.0)


_OVERLOOKED = """
import ctypes, subprocess, sys, threading
def hold():
    held = bytearray(40 << 20)
    child = subprocess.Popen([sys.executable, "-c", "held = bytearray(20 << 20); print(flush=True); input()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    threading.main_thread().join(0.1)
    print(flush=True)
    sys.stdin.readline()
    child.communicate(b"\\n")
threading.Thread(target=hold).start()
ctypes.CDLL(None).syscall(60, 0)  # exit, of the first thread alone; 60 on x86-64
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the number of exit(2)")
def test_a_process_whose_first_thread_has_ended_is_measured_all_the_same() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _OVERLOOKED], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        used = measure([process.pid])
        process.stdin.write(b"\n")
    assert used.processes == 2
    assert used.memory_bytes > 60 << 20
    assert measure([process.pid]) == Use(0, 0, 0.0)


@pytest.fixture
def loop() -> Iterator[Loop]:
    """A loop that ends, whatever happens."""
    loop = Loop()
    loop.later(60.0, loop.stop)
    yield loop
    loop.close()


def test_the_spawner_goes_on_while_a_jail_takes_long_to_measure(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "gate")

    def slowly(pids: tuple[int, ...]) -> Use:
        if pids == (2,):
            with (tmp_path / "gate").open("rb", buffering=0) as gate:
                gate.read(1)
        return Use(pids[0], 1, 0.0)

    monkeypatch.setattr("jail.host.measuring.measure", slowly)
    answers: list[JailsMeasured] = []
    gate = os.open(tmp_path / "gate", os.O_RDWR)

    def take(answer: JailsMeasured) -> None:
        answers.append(answer)
        if len(answers) == 2:
            loop.stop()

    def go_on() -> None:
        measuring.begin([ToMeasure(3, (3,))])
        assert answers == [JailsMeasured(())], "one round at a time"
        os.write(gate, b"x")

    measuring = Measuring(loop, take)
    try:
        measuring.begin([ToMeasure(1, (1,)), ToMeasure(2, (2,))])
        loop.later(0.05, go_on)
        loop.run()
    finally:
        os.close(gate)
        os.wait()
    assert answers[1:] == [JailsMeasured((JailUse(1, 1, 1, 0.0), JailUse(2, 2, 1, 0.0)))]


def test_what_takes_too_long_is_left_out_and_what_was_measured_counts(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "said")
    said = os.open(tmp_path / "said", os.O_RDWR | os.O_NONBLOCK)

    def slowly(pids: tuple[int, ...]) -> Use:
        if pids == (2,):
            with (tmp_path / "said").open("wb", buffering=0) as words:
                words.write(b"x")
            signal.pause()
        return Use(pids[0], 1, 0.0)

    monkeypatch.setattr("jail.host.measuring.measure", slowly)
    answers: list[JailsMeasured] = []

    def take(answer: JailsMeasured) -> None:
        answers.append(answer)
        measuring.begin([ToMeasure(4, (2,))])
        measuring.drop()  # and is not answered
        loop.later(0.05, loop.stop)

    def give_up() -> None:
        loop.forget(said)
        measuring.give_up()

    measuring = Measuring(loop, take)
    try:
        measuring.begin([ToMeasure(n, (n,)) for n in (1, 2, 3)])
        loop.watch(said, give_up)
        loop.run()
    finally:
        os.close(said)
        os.wait()
        os.wait()
    assert answers == [JailsMeasured((JailUse(1, 1, 1, 0.0),))]


def _process(proc: Path, pid: int, name: bytes, pss_kib: int | None, children: str = "") -> None:
    here = proc / str(pid)
    (here / "task" / str(pid)).mkdir(parents=True)
    (here / "task" / str(pid) / "children").write_text(children)
    fields = b"S " + b" ".join(str(n).encode() for n in range(4, 53))
    (here / "stat").write_bytes(b"%d (%b) %b\n" % (pid, name, fields))
    (here / "statm").write_text("100 10 5 1 0 50 0\n")
    if pss_kib is not None:
        (here / "smaps_rollup").write_text(f"00-ff ---p\nRss: 900 kB\nPss: {pss_kib} kB\nPss_Anon: 1 kB\n")


def test_a_name_made_to_confuse_is_none_of_the_figures(tmp_path: Path) -> None:
    _process(tmp_path, 10, b"a) S 1 ) 9", 50, "11 12")
    _process(tmp_path, 11, b"b", 7)
    used = measure([10], tmp_path)  # 12 has ended meanwhile
    assert used.memory_bytes == 57 << 10
    assert used.processes == 2
    assert used.cpu_s == 2 * (14 + 15 + 16 + 17) / os.sysconf("SC_CLK_TCK")


def test_where_proportional_memory_is_not_shown_it_is_resident_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _process(tmp_path, 10, b"a", 50)
    page = os.sysconf("SC_PAGE_SIZE")
    assert measure([10], tmp_path).memory_bytes == 50 << 10
    monkeypatch.setattr("jail.host.measure._CAREFUL_S", -1.0)
    assert measure([10], tmp_path).memory_bytes == 10 * page
