"""Which control groups are found in what a kernel lists."""

from pathlib import Path

import pytest

from jail.host import hierarchies
from jail.host.hierarchies import find_hierarchies

V1_OWN = "4:memory:/job/1\n2:cpu,cpuacct:/\n1:name=systemd:/\n0::/\n"
V1_MOUNTS = """\
30 1 0:26 / {at}/memory rw - cgroup cgroup rw,memory
31 1 0:27 / {at}/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
32 1 0:28 / {at}/systemd rw - cgroup cgroup rw,name=systemd
33 1 0:29 / {at}/unified rw - cgroup2 cgroup2 rw
"""
V2_MOUNTS = "30 1 0:26 {root} {at} rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "proc").mkdir()
    monkeypatch.setattr(hierarchies, "_PROC", tmp_path / "proc")
    return tmp_path


def tell(machine: Path, mounts: str, own: str) -> None:
    (machine / "proc" / "mountinfo").write_text(mounts)
    (machine / "proc" / "cgroup").write_text(own)


def test_of_version_1_each_tree_is_used_where_we_stand_in_it(machine: Path) -> None:
    for name in ("memory/job/1", "cpu,cpuacct", "systemd", "unified"):
        (machine / name).mkdir(parents=True)
    (machine / "unified" / "cgroup.controllers").write_text("hugetlb\n")
    tell(machine, V1_MOUNTS.format(at=machine), V1_OWN)

    found = {(one.version, one.base, one.controllers) for one in find_hierarchies()}

    assert found == {
        (1, machine / "memory/job/1", ("memory",)),
        (1, machine / "cpu,cpuacct", ("cpu",)),
    }


@pytest.mark.parametrize(
    ("uid", "given", "where"), [(0, False, ""), (0, True, "job"), (1000, True, "job"), (1000, False, None)]
)
def test_of_version_2_root_has_the_top_and_anybody_what_was_given_to_them(
    machine: Path, monkeypatch: pytest.MonkeyPatch, uid: int, given: bool, where: str | None
) -> None:
    (machine / "job").mkdir()
    (machine / "cgroup.controllers").write_text("cpuset cpu memory pids\n")
    tell(machine, V2_MOUNTS.format(at=machine, root="/"), "0::/job\n")
    monkeypatch.setattr("jail.host.hierarchies.os.geteuid", lambda: uid)
    monkeypatch.setattr(hierarchies, "_has_attribute", lambda path, _: given and path == machine / "job")

    found = find_hierarchies()

    if where is None:
        assert found == ()
        return
    assert [(one.version, one.base, one.own) for one in found] == [(2, machine / where, machine / "job")]
    assert found[0].controllers == ("memory", "pids", "cpu")


def test_a_mount_that_shows_a_part_of_the_tree_is_understood(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jail.host.hierarchies.os.geteuid", lambda: 0)
    (machine / "inner").mkdir()
    (machine / "cgroup.controllers").write_text("memory\n")
    tell(machine, V2_MOUNTS.format(at=machine, root="/docker/ab"), "0::/docker/ab/inner\n")

    assert [one.own for one in find_hierarchies()] == [machine / "inner"]


def test_a_mount_that_does_not_show_where_we_are_is_not_used(machine: Path) -> None:
    (machine / "cgroup.controllers").write_text("memory\n")
    tell(machine, V2_MOUNTS.format(at=machine, root="/docker/ab"), "0::/docker/abc\n")

    assert find_hierarchies() == ()


def test_without_proc_there_are_none(machine: Path) -> None:
    assert find_hierarchies() == ()
