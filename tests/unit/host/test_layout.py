"""The data directory: each directory its owner's, links and strangers refused."""

import os
import stat
from pathlib import Path

import pytest

from jail.host.layout import Layout
from jail.host.messages import HostError


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    made = Layout(tmp_path / "data", None)
    made.prepare()
    return made


def test_an_ordinary_users_directories_are_their_own_alone(layout: Layout, tmp_path: Path) -> None:
    layout.prepare_user("alice", 0)
    data = tmp_path / "data"

    for name in (".", "users", "_system", "_keys", "sealed", "_run", "users/alice",
                 "users/alice/home", "users/alice/agents"):  # fmt: skip
        assert _mode(data / name) == 0o700
        assert (data / name).stat().st_uid == os.geteuid()


def test_preparing_again_mends_modes_and_keeps_files(layout: Layout, tmp_path: Path) -> None:
    layout.prepare_user("alice", 0)
    home = tmp_path / "data" / "users" / "alice" / "home"
    (home / "note").write_text("kept")
    home.chmod(0o755)

    layout.prepare()
    layout.prepare_user("alice", 0)

    assert _mode(home) == 0o700
    assert (home / "note").read_text() == "kept"


@pytest.mark.parametrize("name", ["users", "_keys", "users/alice", "users/alice/home"])
@pytest.mark.parametrize("what", ["link", "file", "fifo"])
def test_what_is_no_directory_is_refused(layout: Layout, tmp_path: Path, name: str, what: str) -> None:
    layout.prepare_user("alice", 0)
    place = tmp_path / "data" / name
    place.rename(tmp_path / "aside")
    if what == "link":
        place.symlink_to(tmp_path / "aside")
    elif what == "file":
        place.touch()
    else:
        os.mkfifo(place)

    def prepare() -> None:
        layout.prepare()
        layout.prepare_user("alice", 0)

    with pytest.raises(HostError):
        prepare()


def test_a_directory_that_others_may_write_is_no_data_directory(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)

    with pytest.raises(HostError, match="not the server's alone"):
        Layout(tmp_path, None).prepare()
    assert _mode(tmp_path) == 0o777


@pytest.mark.parametrize("user", ["_system", "..", "a/b", ""])
def test_what_is_no_user_id_gets_no_directory(layout: Layout, user: str) -> None:
    with pytest.raises(HostError, match="not a user id"):
        layout.prepare_user(user, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a stranger's directory")
def test_a_strangers_directory_is_refused(layout: Layout, tmp_path: Path) -> None:
    layout.prepare_user("alice", 0)
    home = tmp_path / "data" / "users" / "alice" / "home"
    os.chown(home, 4_321, 4_321)

    with pytest.raises(HostError, match="belongs to uid 4321"):
        layout.prepare_user("alice", 0)
