"""What a tree of processes holds and has used, as the spawner measures it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jail.host.measure import Use, measure

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
