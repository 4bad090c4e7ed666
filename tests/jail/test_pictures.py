"""show_picture in a real jail: what lies in the home is shown, and nothing of anybody else's."""

import json
import os

import pytest

from jail.host.profile import user_paths
from tests.fakes.jails import House, ShellJail
from tests.fakes.pictures import png
from tests.jail.conftest import Enter

_SHOW = """
import asyncio, json, sys
sys.path.insert(0, "/certosa/lib")
from jail.peer.errors import ToolFailed
from jail.peer.tools.base import Surroundings
from jail.peer.tools.showing import SHOW_PICTURE, ShowArguments
try:
    result = asyncio.run(SHOW_PICTURE.run(ShowArguments({path!r}), Surroundings("/home/user", None)))
    print(json.dumps([result.ok, result.picture.path]))
except ToolFailed as error:
    print(json.dumps([False, str(error)]))
"""


def show(jail: ShellJail, path: str) -> tuple[bool, str]:
    """Whether it is shown; as what, or why not."""
    status, said = jail.python(_SHOW.format(path=path))
    assert status == 0, said
    ok, text = json.loads(said)
    return ok, text


def lay(house: House, user: str, name: str, data: bytes) -> str:
    """A file in a user's home, as theirs; its place on the host."""
    path = user_paths(house.data_dir, user).home / name
    path.write_bytes(data)
    if house.owners:
        os.chown(path, house.uid(user), house.uid(user))
    return str(path)


def test_a_picture_of_the_own_home_is_shown_by_its_place_there(house: House, enter: Enter) -> None:
    lay(house, "alice", "a.png", png())
    jail = enter("alice")
    assert jail.sh("ln -sfn . here") == (0, "")
    for path in ("a.png", "/home/user/a.png", "here/a.png", "/proc/self/cwd/a.png", "~/a.png"):
        assert show(jail, path) == (True, "a.png"), path


def test_another_users_picture_is_not_shown_by_any_path(house: House, enter: Enter) -> None:
    place = lay(house, "bob", "only-bobs.png", png())
    jail = enter("alice")
    jail.sh(f"ln -sfn {place} link.png; ln -sfn / root; ln -sfn /proc/1/root proc")
    for path in (place, "link.png", f"root{place}", f"proc{place}", f"../../..{place}", "only-bobs.png"):
        ok, why = show(jail, path)
        assert not ok, path
        assert "outside the home" in why or "There is no" in why, why
    assert show(enter("bob"), "only-bobs.png") == (True, "only-bobs.png")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        ("mkfifo {}", "a FIFO"),
        ("mkdir {}", "a directory"),
        ("touch {}", "no PNG"),
        ("printf 'a line of text' > {}", "no PNG"),
        ("head -c 20 a.png > {}", "only the beginning"),
        ("cp a.png {} && truncate -s 200M {}", "Make it smaller"),
        ("ln -s /dev/zero {}", "outside the home"),
        ("ln -s /etc/passwd {}", "outside the home"),
    ],
)
def test_what_is_no_picture_is_refused_at_once(house: House, enter: Enter, make: str, why: str) -> None:
    lay(house, "alice", "a.png", png())
    jail = enter("alice")
    assert jail.sh("rm -rf x.png && " + make.replace("{}", "x.png")) == (0, "")
    ok, said = show(jail, "x.png")
    assert (ok, why in said) == (False, True), said
    assert show(jail, "a.png") == (True, "a.png")
