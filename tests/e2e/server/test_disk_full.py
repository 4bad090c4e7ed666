"""A disk that fills up under a real server: a small tmpfs, and real ENOSPC."""

import os
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import openai
import pytest

from tests.fakes.plain_client import PlainClient
from tests.fakes.real_server import UNATTACKED, Person, RealServer, own_directory, until

MIB = 1 << 20
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")


@pytest.fixture
def disk() -> Iterator[Path]:
    """A file system of 64 MiB."""
    with own_directory() as directory:
        small = directory / "small"
        small.mkdir()
        options = ["-t", "tmpfs", "-o", "size=64m,mode=711", "none"]
        subprocess.run(["mount", *options, str(small)], check=True, timeout=20)
        try:
            yield small
        finally:
            subprocess.run(["umount", "-l", str(small)], check=True, timeout=20)


@pytest.fixture
def server(disk: Path) -> Iterator[RealServer]:
    running = RealServer(disk, {"hub": {"min_free_bytes": 8 * MIB}}, before=UNATTACKED)
    running.log_path = disk.parent / "server.log"  # the log is not what is to suffer
    try:
        running.start()
        yield running
    finally:
        running.stop()


@pytest.fixture
def alice(server: RealServer) -> Person:
    return server.new_user("alice")


@pytest.fixture
def fill(disk: Path) -> Iterator[Callable[[int], None]]:
    """Leaves so many bytes free; the ballast goes at the end."""
    ballast = disk / "ballast"

    def leave(free_bytes: int) -> None:
        space = os.statvfs(disk)
        with ballast.open("ab") as file:
            left = space.f_bavail * space.f_frsize - free_bytes
            try:
                while left > 0:
                    left -= file.write(b"x" * min(left, MIB))
                    file.flush()
            except OSError:
                assert free_bytes == 0

    yield leave
    ballast.unlink(missing_ok=True)


def test_below_the_floor_no_turn_begins_and_then_it_recovers_by_itself(
    server: RealServer, alice: Person, disk: Path, fill: Callable[[int], None]
) -> None:
    alice.ask("remember the first", session="kept")
    fill(4 * MIB)
    server.wait_logged("disk_low")
    with pytest.raises(openai.InternalServerError) as refused:
        alice.ask("list files", session="kept")
    assert (refused.value.status_code, refused.value.code) == (507, "disk_full")
    assert refused.value.response.headers["retry-after"] == "30"
    # what takes no space goes on, and the token is as good as ever
    reader = PlainClient(server.url, {"Authorization": f"Bearer {alice.token}"})
    assert reader.ask("GET", "/v1/sessions/kept").status == 200
    assert reader.ask("GET", "/v1/models").status == 200
    (disk / "ballast").unlink()
    server.wait_logged("disk_recovered")
    assert alice.ask("remember the second", session="kept").finish == "stop"


def test_a_disk_without_a_byte_left_spoils_nothing(
    server: RealServer, alice: Person, disk: Path, fill: Callable[[int], None]
) -> None:
    alice.ask("remember the third", session="whole")
    server.write_config({"hub": {"min_free_bytes": 0, "port": server.hub_port}})
    server.process.send_signal(1)
    until("the reload", lambda: server.logged("config_used", process="core"))
    fill(0)
    # whatever of it still fits into what SQLite has, nothing is called a bad token and nothing crashes
    seen = set()
    for _ in range(4):
        try:
            seen.add(alice.ask("run: seq 200000", session="whole").finish)
        except openai.APIStatusError as error:
            seen.add(str(error.status_code))
        except openai.APIError as error:
            seen.add(str(error.code))
    assert not seen & {"401", "500", "internal"}, seen
    assert seen - {"stop"}, "the disk was not full"
    (disk / "ballast").unlink()
    until("turns to run again", lambda: alice.ask("remember the fourth", session="after").finish == "stop")
    reader = PlainClient(server.url, {"Authorization": f"Bearer {alice.token}"})
    texts = reader.ask("GET", "/v1/sessions/whole").body
    assert b"remember the third" in texts
    server.stop()
    for path in [*(server.data_dir / "sealed").glob("*.db"), *(server.data_dir / "_keys").glob("*.db")]:
        db = sqlite3.connect(path)
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",), path
        db.close()
    server.start()
    assert alice.ask("list files").finish == "stop"
