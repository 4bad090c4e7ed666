"""What a home holds is counted whole, once, and within bounds."""

import os
from pathlib import Path

import pytest

from jail.host import homes
from jail.host.homes import weigh
from jail.host.profile import Limits

KIB = 1 << 10


def put(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(size))


def test_files_in_all_directories_count_and_hidden_ones_too(tmp_path: Path) -> None:
    put(tmp_path / "a", 64 * KIB)
    put(tmp_path / "deep" / "down" / ".b", 64 * KIB)

    held, files, whole = weigh(tmp_path, Limits())

    assert 128 * KIB <= held < 160 * KIB
    assert (files, whole) == (4, True)


def test_a_file_of_several_names_counts_once(tmp_path: Path) -> None:
    put(tmp_path / "a", 64 * KIB)
    os.link(tmp_path / "a", tmp_path / "b")

    held, files, _ = weigh(tmp_path, Limits())

    assert held < 128 * KIB
    assert files == 1


def test_a_hole_takes_no_room(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 30)

    assert weigh(tmp_path, Limits())[0] < 1 << 20


def test_links_are_not_followed(tmp_path: Path) -> None:
    put(tmp_path / "elsewhere" / "a", 256 * KIB)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "link").symlink_to(tmp_path / "elsewhere")

    held, files, whole = weigh(tmp_path / "home", Limits())

    assert held < 64 * KIB
    assert (files, whole) == (1, True)
    with pytest.raises(NotADirectoryError):
        weigh(tmp_path / "home" / "link", Limits())


def test_far_past_a_limit_it_stops(tmp_path: Path) -> None:
    for number in range(50):
        put(tmp_path / str(number), 1)

    _, files, whole = weigh(tmp_path, Limits(disk_files=10))

    assert (files, whole) == (21, False)


def test_nesting_without_end_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(homes, "_MAX_DEPTH", 5)
    (tmp_path / "1/2/3/4").mkdir(parents=True)
    assert weigh(tmp_path, Limits())[2]

    (tmp_path / "1/2/3/4/5").mkdir()
    assert not weigh(tmp_path, Limits())[2]


def test_names_without_end_are_not_counted_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(homes, "_MAX_NAMES", 10)
    put(tmp_path / "0", 1)
    for number in range(1, 10):
        os.link(tmp_path / "0", tmp_path / str(number))
    assert weigh(tmp_path, Limits())[1:] == (1, True)

    os.link(tmp_path / "0", tmp_path / "10")
    assert weigh(tmp_path, Limits())[1:] == (1, False)
