import os
from pathlib import Path

from core.cli.jail_memory import jail_memory_bytes


def process(
    proc: Path, pid: int, parent: int, rss_kib: int, pss_kib: int | None = None, name: str = "x"
) -> None:
    (proc / str(pid)).mkdir()
    status = f"Name:\t{name}\nUmask:\t0022\nPid:\t{pid}\nPPid:\t{parent}\nVmRSS:\t {rss_kib} kB\n"
    (proc / str(pid) / "status").write_text(status)
    if pss_kib is not None:
        (proc / str(pid) / "smaps_rollup").write_text(f"0-1 ---p\nRss: 9 kB\nPss:   {pss_kib} kB\n")


def test_a_tree_is_counted_whole_and_nothing_beside_it(tmp_path: Path) -> None:
    process(tmp_path, 10, 1, 100, 40)
    process(tmp_path, 11, 10, 100, 30)
    process(tmp_path, 12, 11, 100, 7)
    process(tmp_path, 20, 1, 100, 50)
    (tmp_path / "meminfo").write_text("")
    assert jail_memory_bytes(10, tmp_path) == 77 * 1024


def test_the_bwrap_above_belongs_to_the_jail_and_what_started_it_does_not(tmp_path: Path) -> None:
    process(tmp_path, 8, 1, 1000, 900, "python3")
    process(tmp_path, 9, 8, 100, 3, "bwrap")
    process(tmp_path, 10, 9, 100, 40)
    process(tmp_path, 11, 8, 100, 50)
    assert jail_memory_bytes(10, tmp_path) == 43 * 1024
    assert jail_memory_bytes(11, tmp_path) == 50 * 1024


def test_resident_memory_counts_where_the_proportional_is_not_to_be_seen(tmp_path: Path) -> None:
    process(tmp_path, 10, 1, 100)
    assert jail_memory_bytes(10, tmp_path) == 100 * 1024


def test_a_process_that_has_ended_holds_nothing(tmp_path: Path) -> None:
    assert jail_memory_bytes(10, tmp_path) == 0


def test_this_process_holds_some_memory() -> None:
    assert 1 << 20 < jail_memory_bytes(os.getpid()) < 1 << 36
