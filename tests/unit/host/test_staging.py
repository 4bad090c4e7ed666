"""Staging: complete, once a version, and readable by everybody."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from jail.host import staging
from jail.host.messages import HostError
from jail.host.staging import Staged, check_readable, stage

SOURCE = Path(__file__).resolve().parents[3]


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a file each."""
    monkeypatch.setattr(staging, "_PACKAGES", ("msgspec",))
    source = tmp_path / "source"
    for name in ("jail/wire", "jail/peer", "jail/host", "actors", "core"):
        (source / name).mkdir(parents=True)
        (source / name / "__init__.py").write_text("x = 1\n")
    (source / "jail" / "__init__.py").write_text("")
    (source / "core" / "data.toml").write_text("a = 1\n")
    (source / "core" / "__pycache__").mkdir()
    (source / "core" / "__pycache__" / "old.pyc").write_bytes(b"")
    return source


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


@pytest.fixture
def staged(small: Path, data: Path) -> Iterator[Staged]:
    made = stage(data, small)
    yield made
    made.close()


def test_the_app_has_every_floor_and_a_jail_only_its_own(staged: Staged) -> None:
    assert (staged.app / "core" / "data.toml").read_text() == "a = 1\n"
    assert (staged.app / "jail" / "host" / "__init__.py").exists()
    assert sorted(p.name for p in staged.lib.iterdir()) == ["jail", "msgspec"]
    assert sorted(p.name for p in (staged.lib / "jail").iterdir() if p.name[0] != "_") == [
        "peer",
        "wire",
    ]
    assert (staged.etc / "passwd").read_text().startswith("user:x:1000:1000:")


def test_all_is_compiled_and_old_compilations_and_stubs_are_left_out(staged: Staged) -> None:
    compiled = list(staged.app.rglob("*.pyc"))

    assert len(compiled) == len(list(staged.app.rglob("*.py")))
    assert all(path.read_bytes()[4] == 1 for path in compiled)  # PEP 552: hash, unchecked
    assert not list(staged.root.rglob("old.pyc"))
    assert not list(staged.root.rglob("*.pyi"))


def test_everybody_may_read_it_and_nobody_else_write(staged: Staged) -> None:
    for path in (staged.root, *staged.root.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o755 if path.is_dir() else 0o644)


def test_the_same_source_is_staged_once(small: Path, data: Path, staged: Staged) -> None:
    marker = staged.root.stat().st_ino
    again = stage(data, small)

    assert again.root == staged.root
    assert again.root.stat().st_ino == marker
    again.close()


def test_a_changed_source_is_staged_beside_one_in_use(small: Path, data: Path, staged: Staged) -> None:
    (small / "core" / "__init__.py").write_text("x = 2\n")
    fresh = stage(data, small)

    assert fresh.root != staged.root
    assert staged.root.exists()
    fresh.close()


def test_an_old_version_that_nobody_uses_is_removed(small: Path, data: Path) -> None:
    old = stage(data, small)
    old.close()
    (small / "core" / "__init__.py").write_text("x = 2\n")
    fresh = stage(data, small)

    assert not old.root.exists()
    assert [path.name for path in (data / "_runtime").iterdir()] == [fresh.root.name]
    fresh.close()


def test_a_half_made_version_is_swept_away(small: Path, data: Path) -> None:
    (data / "_runtime" / ".new-0").mkdir(parents=True)
    stage(data, small).close()

    assert not (data / "_runtime" / ".new-0").exists()


def test_a_version_that_others_may_write_is_refused(small: Path, data: Path) -> None:
    made = stage(data, small)
    made.close()
    made.root.chmod(0o777)

    with pytest.raises(HostError, match="only the server may write"):
        stage(data, small)


def test_code_that_does_not_compile_is_said_and_leaves_nothing(small: Path, data: Path) -> None:
    (small / "core" / "__init__.py").write_text("x = = 2\n")

    with pytest.raises(HostError, match=r"app/core/__init__\.py does not compile"):
        stage(data, small)
    assert list((data / "_runtime").iterdir()) == []


def test_a_missing_floor_is_said(small: Path, data: Path) -> None:
    (small / "actors" / "__init__.py").unlink()
    (small / "actors").rmdir()

    with pytest.raises(HostError, match="actors is missing"):
        stage(data, small)


def test_a_place_below_a_private_directory_is_not_readable(tmp_path: Path) -> None:
    private = tmp_path / "private"
    (private / "deep").mkdir(parents=True)
    file = private / "deep" / "file"
    file.write_text("x")
    private.chmod(0o700)

    with pytest.raises(HostError, match=r"chmod o\+x"):
        check_readable(file)
    check_readable(Path("/usr/bin"))
    with pytest.raises(HostError, match="No such file"):
        check_readable(Path("/usr/missing"))


def test_the_real_checkout_has_all_that_is_staged() -> None:
    places = dict(staging._plan(SOURCE))

    for place in ("lib/jail/peer/start.py", "lib/jail/peer/probe.py", "lib/jail/wire/schema.py",
                  "lib/zmq/__init__.py", "lib/msgpack/__init__.py", "app/core/app.py"):  # fmt: skip
        assert place in places
    assert not [place for place in places if "/tests/" in place or place.startswith("lib/jail/host")]
    assert not os.path.exists(SOURCE / "_runtime")
