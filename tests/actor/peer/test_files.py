"""Core's file verbs, answered by a real worker on a home of its own."""

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from jail.peer.worker import EXIT_PEER_GONE
from jail.wire.schema import (
    Body,
    Done,
    Failure,
    FileDelete,
    FileInfo,
    FileList,
    FileRead,
    FileStat,
    FileWrite,
)
from tests.actor.peer.conftest import Pair, Start

_UPLOAD = "0123456789abcdef"


def ask(pair: Pair, body: Body, timeout_s: float = 20.0) -> Any:
    """The reply or the Failure."""
    request = pair.core.request(body)
    pair.core.pump(lambda: request in pair.core.closed_requests, timeout_s)
    return pair.core.closed_requests[request]


def refusal(pair: Pair, body: Body) -> str:
    """The code of a refusal, which has to come within a second."""
    pair.core.settle()
    answer = ask(pair, body, 1.0)
    assert isinstance(answer, Failure), answer
    return answer.code


def names(pair: Pair, path: str = ".") -> list[str]:
    request = pair.core.request(FileList(path))
    pair.core.pump(lambda: request in pair.core.closed_requests)
    assert pair.core.closed_requests[request] == Done()
    return [entry.name for item in pair.core.items.get(request, []) for entry in item.entries]


def content(pair: Pair, body: FileRead) -> bytes:
    request = pair.core.request(body)
    pair.core.pump(lambda: request in pair.core.closed_requests)
    assert isinstance(pair.core.closed_requests[request], FileInfo)
    return b"".join(item.data for item in pair.core.items.get(request, []))


def parts(pair: Pair) -> list[str]:
    """Temporary files of uploads."""
    directory = pair.worker.home / ".certosa" / "uploads"
    return os.listdir(directory) if directory.exists() else []


def test_a_file_is_read_whole_and_in_part(start: Start) -> None:
    pair = start()
    data = os.urandom(300_000)
    (pair.worker.home / "data").write_bytes(data)

    assert content(pair, FileRead("data")) == data
    assert content(pair, FileRead("./data", 1_000, 5)) == data[1_000:1_005]
    assert content(pair, FileRead("/data", 299_990)) == data[-10:]
    assert content(pair, FileRead("data", 300_001)) == b""


def test_a_file_that_changed_is_not_read_under_its_old_mark(start: Start) -> None:
    pair = start()
    file = pair.worker.home / "data"
    file.write_bytes(b"one")
    mark = ask(pair, FileStat("data")).mark
    assert content(pair, FileRead("data", mark=mark)) == b"one"

    file.write_bytes(b"two")

    assert refusal(pair, FileRead("data", mark=mark)) == "invalid"


def test_no_more_is_sent_than_credit_was_given_for(start: Start) -> None:
    pair = start()
    (pair.worker.home / "data").write_bytes(bytes(3 << 20))
    pair.core.grants = False

    request = pair.core.request(FileRead("data"))
    pair.core.pump(lambda: len(pair.core.items.get(request, [])) == 16)
    pair.core.settle()
    assert len(pair.core.items[request]) == 16
    assert request not in pair.core.closed_requests

    pair.core.send(pair.core.connection.cancel(request))
    pair.core.pump(lambda: request in pair.core.closed_requests)
    assert pair.core.closed_requests[request].code == "cancelled"


def test_an_upload_stands_whole_or_not_at_all(start: Start) -> None:
    pair = start()
    old = pair.worker.home / "deep" / "new.bin"

    assert ask(pair, FileWrite("deep/new.bin", _UPLOAD, 0, b"abc", False)) == Done()
    assert not old.exists()
    assert ask(pair, FileWrite("deep/new.bin", _UPLOAD, 3, b"def", True)) == Done()

    assert old.read_bytes() == b"abcdef"
    assert parts(pair) == []


def test_a_replaced_file_keeps_its_mode_and_a_link_stays_a_link(start: Start) -> None:
    pair = start()
    home = pair.worker.home
    (home / "script").write_bytes(b"old")
    (home / "script").chmod(0o750)
    (home / "link").symlink_to("script")

    assert ask(pair, FileWrite("link", _UPLOAD, 0, b"new", True)) == Done()

    assert (home / "link").is_symlink()
    assert (home / "script").read_bytes() == b"new"
    assert (home / "script").stat().st_mode & 0o777 == 0o750


def test_a_dropped_or_broken_upload_leaves_nothing(start: Start) -> None:
    pair = start()
    assert ask(pair, FileWrite("f", _UPLOAD, 0, b"abc", False)) == Done()
    assert parts(pair) == [f"{_UPLOAD}.part"]
    assert ask(pair, FileWrite("f", _UPLOAD, 0, b"", False, drop=True)) == Done()
    assert parts(pair) == []

    assert ask(pair, FileWrite("f", _UPLOAD, 0, b"abc", False)) == Done()
    assert refusal(pair, FileWrite("f", _UPLOAD, 7, b"abc", False)) == "invalid"
    assert parts(pair) == []
    assert refusal(pair, FileWrite("f", _UPLOAD, 3, b"abc", False)) == "not_found"
    assert not (pair.worker.home / "f").exists()


def test_the_end_of_core_forgets_uploads_and_a_killed_worker_is_swept_up_after(start: Start) -> None:
    pair = start()
    assert ask(pair, FileWrite("f", _UPLOAD, 0, b"abc", False)) == Done()
    left = pair.worker.home / ".certosa" / "uploads" / "00000000000000aa.part"
    pair.core.sock.close()
    assert pair.worker.wait(5) == EXIT_PEER_GONE
    assert parts(pair) == []

    left.write_bytes(b"of a worker that was killed")
    again = start()
    assert ask(again, FileWrite("f", _UPLOAD, 0, b"abc", True)) == Done()
    assert not left.exists()


def test_a_listing_says_what_lies_there_and_hides_what_is_ours(start: Start) -> None:
    pair = start()
    home = pair.worker.home
    (home / "b.txt").write_text("four")
    (home / "a").mkdir()
    (home / "c").symlink_to("/etc")
    os.mkfifo(home / "d")
    (home / ".certosa").mkdir()
    (home / ".certosa" / "x").touch()

    request = pair.core.request(FileList("."))
    pair.core.pump(lambda: request in pair.core.closed_requests)

    (item,) = pair.core.items[request]
    seen = [(entry.name, entry.info.kind, entry.info.size_bytes) for entry in item.entries]
    assert seen == [("a", "directory", 0), ("b.txt", "file", 4), ("c", "link", 0), ("d", "other", 0)]
    assert names(pair, ".certosa") == ["x"]
    assert names(pair, "a") == []


def test_odd_names_can_be_listed_read_and_deleted(start: Start) -> None:
    pair = start()
    home = os.fsencode(pair.worker.home)
    for raw in (b"new\nline", b"caf\xe9", b"\xed\xa0\x80", "snow☃".encode()):
        Path(os.fsdecode(home + b"/" + raw)).write_bytes(raw)

    found = names(pair)

    assert sorted(found) == sorted(["new\nline", "caf\0e9", "\0ed\0a0\080", "snow☃"])
    for name in found:
        assert content(pair, FileRead(name)) in (b"new\nline", b"caf\xe9", b"\xed\xa0\x80", "snow☃".encode())
        assert ask(pair, FileDelete(name)) == Done()
    assert names(pair) == []


def test_twenty_thousand_entries_are_listed_in_order(start: Start) -> None:
    pair = start()
    pair.core.pump(lambda: pair.core.connection.ready)  # it does not wait for our HELLO for ever
    many = pair.worker.home / "many"
    many.mkdir()
    for number in range(20_000):
        os.close(os.open(many / f"{number:06}", os.O_CREAT | os.O_WRONLY, 0o600))

    assert names(pair, "many") == [f"{number:06}" for number in range(20_000)]


@pytest.mark.parametrize("path", ["..", "../x", "a/../../x", "/../x", "a\0b", "a\0c3\0a9"])
def test_a_path_that_says_no_place_is_refused(start: Start, path: str) -> None:
    pair = start()
    for body in (FileStat(path), FileRead(path), FileList(path), FileDelete(path)):
        assert refusal(pair, body) == "invalid"
    assert refusal(pair, FileWrite(path, _UPLOAD, 0, b"", True)) == "invalid"


def test_a_link_out_of_the_home_leads_nowhere(start: Start) -> None:
    pair = start()
    home = pair.worker.home
    outside = home.parent / "outside"
    outside.mkdir()
    (outside / "secret").write_text("s")
    (home / "out").symlink_to(outside)
    (home / "file").symlink_to(outside / "secret")
    (home / "within").symlink_to("real")
    (home / "real").write_text("fine")

    assert content(pair, FileRead("within")) == b"fine"
    for path in ("out/secret", "file"):
        assert refusal(pair, FileRead(path)) == "refused"
        assert refusal(pair, FileWrite(path, _UPLOAD, 0, b"x", True)) == "refused"
    assert refusal(pair, FileList("out")) == "refused"
    assert refusal(pair, FileDelete("out/secret")) == "refused"
    assert ask(pair, FileStat("file")).kind == "link"
    assert ask(pair, FileDelete("out", recursive=True)) == Done()  # the link, not what it leads to
    assert (outside / "secret").read_text() == "s"


def test_what_is_no_file_is_refused_at_once(start: Start) -> None:
    pair = start()
    home = pair.worker.home
    os.mkfifo(home / "fifo")
    (home / "device").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(home / "socket"))
        for name in ("fifo", "device", "socket"):
            assert refusal(pair, FileRead(name)) == "refused"
            assert refusal(pair, FileWrite(name, _UPLOAD, 0, b"x", True)) == "refused"
    assert ask(pair, FileStat("fifo")).kind == "other"
    (home / "circle").symlink_to("circle")
    assert refusal(pair, FileRead("circle")) in ("refused", "invalid")


def test_deleting_takes_a_directory_only_when_all_of_it_is_meant(start: Start) -> None:
    pair = start()
    home = pair.worker.home
    (home / "d" / "e").mkdir(parents=True)
    (home / "d" / "e" / "f").touch()

    assert refusal(pair, FileDelete("d")) == "invalid"
    assert refusal(pair, FileDelete(".", recursive=True)) == "refused"
    assert refusal(pair, FileDelete("nothing")) == "not_found"
    assert ask(pair, FileDelete("d", recursive=True)) == Done()
    assert not (home / "d").exists()
