"""Files: nobody else's by any path, nothing of the server's, and the own ones as they should be."""

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jail.host.messages import HostError
from jail.host.profile import Limits, user_paths
from tests.fakes.jails import House, ShellJail, is_root
from tests.jail.conftest import Enter

WAYS = (
    "{path}",
    "/proc/self/root{path}",
    "/proc/1/root{path}",
    "/proc/1/cwd/../../..{path}",
    "/home/user/../../..{path}",
    "/proc/self/fd/0/../../..{path}",
)


@pytest.mark.wall("another-user")
@pytest.mark.wall("read-only")
def test_the_own_home_is_read_and_written(house: House, alice: ShellJail) -> None:
    assert alice.sh("echo mine > note && cat note") == (0, "mine\n")

    note = user_paths(house.data_dir, "alice").home / "note"
    assert note.read_text() == "mine\n"
    assert note.stat().st_uid == (house.uid("alice") or os.geteuid())


@pytest.mark.wall("another-user")
@pytest.mark.parametrize("way", WAYS)
def test_another_users_file_is_out_of_reach(house: House, alice: ShellJail, way: str) -> None:
    home = user_paths(house.data_dir, "bob").home
    house.write(home / "secret", "bob's own", "bob")

    status, text = alice.sh(f"cat {way.format(path=home / 'secret')}")

    assert status != 0
    assert "bob's own" not in text


@pytest.mark.wall("another-user")
def test_another_user_reads_that_file_in_their_own_jail(house: House, enter: Enter) -> None:
    home = user_paths(house.data_dir, "bob").home
    house.write(home / "secret", "bob's own", "bob")

    assert enter("bob").sh("cat secret") == (0, "bob's own")


@pytest.mark.wall("another-user")
def test_a_link_into_another_home_leads_nowhere(house: House, enter: Enter) -> None:
    home = user_paths(house.data_dir, "bob").home
    house.write(home / "secret", "bob's own", "bob")
    (user_paths(house.data_dir, "alice").home / "link").unlink(missing_ok=True)
    (user_paths(house.data_dir, "alice").home / "link").symlink_to(home / "secret")

    status, text = enter("alice").sh("cat link")

    assert status != 0
    assert "bob's own" not in text


@pytest.mark.wall("server")
@pytest.mark.parametrize("name", ["_keys", "_system", "sealed", "_run", "users", "_runtime", ""])
def test_the_servers_directories_are_not_there(house: House, alice: ShellJail, name: str) -> None:
    assert (house.data_dir / name).is_dir()
    assert alice.run("ls", str(house.data_dir / name))[0] != 0


@pytest.mark.wall("uids")
@pytest.mark.skipif(not is_root(), reason="an ordinary user's jails share a uid")
def test_file_modes_alone_part_two_users_of_a_root_server(house: House) -> None:
    users = house.data_dir / "users"
    home = users / "bob" / "home"

    assert stat.S_IMODE(house.data_dir.stat().st_mode) == 0o711
    assert stat.S_IMODE(users.stat().st_mode) == 0o711
    assert (home.stat().st_uid, stat.S_IMODE(home.stat().st_mode)) == (house.uid("bob"), 0o700)
    outer = (users / "bob").stat()
    assert (outer.st_gid, stat.S_IMODE(outer.st_mode)) == (house.uid("bob"), 0o710)


@pytest.mark.wall("read-only")
def test_agents_are_read_and_not_written(house: House, alice: ShellJail) -> None:
    agents = user_paths(house.data_dir, "alice").agents
    (agents / "assistant.toml").write_text("name = 'assistant'\n")
    if house.owners:
        os.chmod(agents / "assistant.toml", 0o644)

    assert alice.sh("cat /agents/assistant.toml") == (0, "name = 'assistant'\n")
    assert alice.sh("echo x > /agents/assistant.toml")[0] != 0
    assert alice.sh("touch /agents/other.toml")[0] != 0


@pytest.mark.wall("read-only")
@pytest.mark.parametrize(
    "place", ["/", "/dev", "/etc", "/usr", "/certosa", "/certosa/lib", "/proc", "/proc/sys/kernel"]
)
def test_nothing_else_is_writable(alice: ShellJail, place: str) -> None:
    assert alice.run("touch", f"{place}/x")[0] != 0
    assert alice.run("ls", place)[0] == 0


@pytest.mark.wall("system")
def test_what_every_program_expects_is_there(alice: ShellJail) -> None:
    script = "echo x > /dev/null && head -c 4 /dev/urandom | wc -c && id -un && awk 'BEGIN{print 1}'"

    assert alice.sh(script) == (0, "4\nuser\n1\n")


@pytest.mark.wall("system")
def test_no_directory_of_the_kernels_or_the_systems_is_mounted(alice: ShellJail) -> None:
    status, text = alice.sh("ls /")

    assert status == 0
    assert not {"sys", "run", "var", "root", "boot", "srv", "mnt"} & set(text.split())


@pytest.mark.wall("tmp")
def test_tmp_and_shm_are_ones_own_and_small(enter: Enter) -> None:
    limits = Limits(tmp_bytes=1 << 20)
    first, second = enter("alice", limits=limits), enter("bob", limits=limits)

    for place in ("/tmp", "/dev/shm"):
        assert first.sh(f"echo a > {place}/x && cat {place}/x") == (0, "a\n")
        assert second.run("ls", f"{place}/x")[0] != 0
        status, text = first.sh(f"head -c 2000000 /dev/zero > {place}/big")
        assert status != 0
        assert "No space left" in text


@pytest.mark.wall("file-size")
def test_a_file_past_the_limit_is_cut(enter: Enter) -> None:
    jail = enter("alice", limits=Limits(file_bytes=100_000))

    assert jail.sh("head -c 90000 /dev/zero > small && wc -c < small") == (0, "90000\n")
    assert jail.sh("head -c 200000 /dev/zero > big")[0] != 0


@pytest.mark.wall("file-size")
def test_memory_without_a_name_has_the_limit_of_a_file(enter: Enter) -> None:
    jail = enter("alice", limits=Limits(file_bytes=100_000))
    code = """
import os
fd = os.memfd_create('x')
print(os.write(fd, bytes(90_000)), os.write(fd, bytes(90_000)))
try:
    os.write(fd, b'x')
except OSError as error:
    print(os.strerror(error.errno))
"""
    assert jail.python(code) == (0, "90000 10000\nFile too large\n")


@pytest.mark.wall("setuid-file")
def test_a_setuid_file_is_never_roots_outside(house: House, alice: ShellJail) -> None:
    assert alice.sh("cp /usr/bin/id mine && chmod 6755 mine")[0] == 0

    info = (user_paths(house.data_dir, "alice").home / "mine").stat()
    assert info.st_uid == (house.uid("alice") or os.geteuid())
    # and in another jail nobody finds it, and a setuid bit does nothing without new privileges
    assert alice.sh("./mine -u") == (0, "1000\n")


@pytest.mark.wall("hard-link")
def test_a_hard_link_from_the_code_mount_is_refused(alice: ShellJail) -> None:
    code = "/certosa/lib/jail/peer/start.py"

    assert alice.run("test", "-r", code)[0] == 0
    assert alice.run("ln", code, "stolen")[0] != 0


@pytest.mark.wall("device")
def test_device_files_cannot_be_made(alice: ShellJail) -> None:
    assert alice.sh("rm -f fifo && mkfifo fifo")[0] == 0
    assert alice.run("mknod", "disk", "b", "8", "0")[0] != 0


@pytest.mark.wall("environment")
def test_no_path_of_the_servers_shows_in_the_command_line(alice: ShellJail) -> None:
    status, text = alice.sh("tr '\\0' ' ' < /proc/1/cmdline")

    assert status == 0
    assert "bwrap" not in text
    assert text.startswith("/usr/bin/python3")


@pytest.mark.wall("odd-place")
@pytest.mark.parametrize("make", [Path.touch, os.mkfifo, lambda path: path.symlink_to("/etc")])
def test_what_is_no_directory_where_a_home_belongs_is_refused_at_once(
    house: House, make: Callable[[Path], None]
) -> None:
    house.add("carol")
    home = user_paths(house.data_dir, "carol").home
    home.rmdir()
    make(home)
    began = time.monotonic()

    with pytest.raises(HostError, match="not a directory of ours"):
        house.add("carol")

    assert time.monotonic() - began < 1
    home.unlink()
    house.add("carol")
