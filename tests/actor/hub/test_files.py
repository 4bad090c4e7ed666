"""/v1/files over HTTP, with the worker's own file code behind it."""

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import quote

import pytest

from jail.wire.schema import (
    Body,
    Done,
    Failure,
    FileChunk,
    FileEntries,
    FileEntry,
    FileInfo,
    FileRead,
    FileStat,
    FileWrite,
)
from tests.fakes.hub_process import HubProcess
from tests.fakes.plain_client import PlainClient, read_to_end

_WAIT_S = 15.0


def until(look: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + _WAIT_S
    while not look():
        assert time.monotonic() < deadline_s, "it did not happen in time"
        time.sleep(0.01)


def content(path: str) -> str:
    return f"/v1/files/content?path={path}"


@contextmanager
def half_an_upload(hub: HubProcess, sent: bytes, announced: int) -> Iterator[socket.socket]:
    head = (
        f"PUT {content('half')} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer token-alice\r\n"
        f"Content-Length: {announced}\r\n\r\n"
    )
    with closing(socket.create_connection(hub.address)) as sock:
        sock.settimeout(_WAIT_S)
        sock.sendall(head.encode() + sent)
        yield sock


def test_what_was_sent_up_comes_down(hub: HubProcess, plain: PlainClient) -> None:
    data = os.urandom(700_001)

    made = plain.ask("PUT", content("deep/a.bin"), data)
    again = plain.ask("PUT", content("deep/a.bin"), data)
    got = plain.ask("GET", content("deep/a.bin"))

    assert (made.status, again.status, got.status) == (201, 200, 200)
    assert made.json["size_bytes"] == 700_001
    assert made.json["path"] == "deep/a.bin"
    assert got.body == data
    assert got.headers["content-type"] == "application/octet-stream"
    assert got.headers["x-content-type-options"] == "nosniff"
    assert got.headers["content-disposition"] == "attachment; filename=\"a.bin\"; filename*=UTF-8''a.bin"
    assert hub.calls.parts("alice") == []


@pytest.mark.parametrize("size", [0, 1, 128 << 10, 256 << 10])
def test_every_size_goes_through(hub: HubProcess, plain: PlainClient, size: int) -> None:
    data = os.urandom(size)
    assert plain.ask("PUT", content("f"), data).status == 201
    got = plain.ask("GET", content("f"))
    assert got.body == data
    assert got.headers["content-length"] == str(size)


def test_a_part_is_sent_on_request_and_only_of_the_same_file(hub: HubProcess, plain: PlainClient) -> None:
    plain.ask("PUT", content("f"), b"0123456789")
    tag = plain.ask("GET", content("f")).headers["etag"]

    some = plain.ask("GET", content("f"), headers={"Range": "bytes=2-4", "If-Range": tag})
    assert (some.status, some.body) == (206, b"234")
    assert some.headers["content-range"] == "bytes 2-4/10"
    past = plain.ask("GET", content("f"), headers={"Range": "bytes=10-"})
    assert past.status == 416
    assert past.headers["content-range"] == "bytes */10"
    assert past.error["code"] == "range_not_satisfiable"
    many = plain.ask("GET", content("f"), headers=[("Range", "bytes=0-1"), ("Range", "bytes=2-3")])
    assert (many.status, many.body) == (200, b"0123456789")

    plain.ask("PUT", content("f"), b"abcdefghij")

    whole = plain.ask("GET", content("f"), headers={"Range": "bytes=2-4", "If-Range": tag})
    assert (whole.status, whole.body) == (200, b"abcdefghij")


def test_head_says_what_a_get_would(hub: HubProcess, plain: PlainClient) -> None:
    plain.ask("PUT", content("f"), b"0123456789")
    head = plain.ask("HEAD", content("f"))
    assert (head.status, head.headers["content-length"], head.body) == (200, "10", b"")
    assert not [body for _, body in hub.calls.asked if isinstance(body, FileRead)]


def test_a_directory_is_listed_and_a_file_described(hub: HubProcess, plain: PlainClient) -> None:
    plain.ask("PUT", content("d/a.txt"), b"four")
    plain.ask("PUT", content("b.txt"), b"")

    home = plain.ask("GET", "/v1/files").json
    inner = plain.ask("GET", "/v1/files?path=d").json
    file = plain.ask("GET", "/v1/files?path=d/a.txt").json

    assert [(entry["name"], entry["kind"]) for entry in home["data"]] == [
        ("b.txt", "file"),
        ("d", "directory"),
    ]
    assert home["object"] == "list"
    assert [(entry["path"], entry["size_bytes"]) for entry in inner["data"]] == [("d/a.txt", 4)]
    assert (file["kind"], file["size_bytes"]) == ("file", 4)


def test_an_empty_directory_is_an_empty_list(hub: HubProcess, plain: PlainClient) -> None:
    assert plain.ask("GET", "/v1/files").json["data"] == []


@pytest.mark.parametrize("name", [b"new\nline", b"caf\xe9", "snow☃".encode(), b'quo"te\\', b"a+b c&d=e#f%41"])
def test_any_name_goes_up_down_and_away(hub: HubProcess, plain: PlainClient, name: bytes) -> None:
    said = quote(name)
    assert plain.ask("PUT", content(said), name).status == 201
    (entry,) = [e for e in plain.ask("GET", "/v1/files").json["data"] if e["name"] != ".certosa"]

    assert entry["path_encoded"] == said
    assert os.fsencode(next(p.name for p in hub.calls.home("alice").iterdir() if p.is_file())) == name
    got = plain.ask("GET", content(entry["path_encoded"]))
    assert got.body == name
    assert "\n" not in got.headers["content-disposition"]
    assert plain.ask("DELETE", f"/v1/files?path={said}").json["deleted"] is True
    assert plain.ask("GET", f"/v1/files?path={said}").status == 404


def test_a_directory_is_deleted_only_when_all_of_it_is_meant(hub: HubProcess, plain: PlainClient) -> None:
    plain.ask("PUT", content("d/a"), b"x")
    assert plain.ask("DELETE", "/v1/files?path=d").error["code"] == "invalid"
    assert plain.ask("DELETE", "/v1/files?path=d&recursive=perhaps").status == 400
    assert plain.ask("DELETE", "/v1/files?path=d&recursive=true").status == 200
    assert plain.ask("DELETE", "/v1/files?path=.&recursive=true").status == 403


@pytest.mark.parametrize(
    ("path", "status"),
    [("../x", 400), ("a/../../x", 400), ("%2e%2e/x", 400), ("..%2fx", 400), ("a%00b", 400), ("", 400),
     ("x" * 5_000, 400), ("/etc/passwd", 404), ("nothing", 404)],
)  # fmt: skip
def test_a_path_that_says_no_place_is_refused(
    hub: HubProcess, plain: PlainClient, path: str, status: int
) -> None:
    assert plain.ask("GET", content(path)).status == status
    assert plain.ask("DELETE", f"/v1/files?path={path}").status in (status, 403)


def test_what_is_no_file_is_refused_by_name(hub: HubProcess, plain: PlainClient) -> None:
    home = hub.calls.home("alice")
    os.mkfifo(home / "fifo")
    (home / "d").mkdir()
    (home / "out").symlink_to("/etc/passwd")
    for name in ("fifo", "d", "out"):
        assert plain.ask("GET", content(name)).error["code"] == "not_a_file"
    for name in ("fifo", "d"):
        assert plain.ask("PUT", content(name), b"x").error["code"] == "not_a_file"
    assert plain.ask("PUT", content("out"), b"x").status == 403


def test_nobody_sees_another_users_files_and_strangers_see_none(hub: HubProcess, plain: PlainClient) -> None:
    bob = PlainClient(hub.url, {"Authorization": "Bearer token-bob"})
    plain.ask("PUT", content("mine"), b"of alice")

    assert bob.ask("GET", content("mine")).status == 404
    assert bob.ask("GET", "/v1/files").json["data"] == []
    for method, path in (("GET", "/v1/files"), ("GET", content("mine")), ("PUT", content("mine"))):
        assert PlainClient(hub.url).ask(method, path).status == 401
    assert {user for user, body in hub.calls.asked if isinstance(body, FileWrite)} == {"alice"}


def test_an_upload_past_the_limit_is_refused_before_and_while_it_comes(tmp_path: Any) -> None:
    hub = HubProcess(tmp_path, max_upload_bytes=1_000)
    try:
        plain = PlainClient(hub.url, {"Authorization": "Bearer token-alice"})
        assert plain.ask("PUT", content("f"), bytes(1_000)).status == 201
        assert plain.ask("PUT", content("g"), bytes(1_001)).error["code"] == "body_too_large"
        head = (
            f"PUT {content('g')} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer token-alice\r\n"
            "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        )
        with closing(socket.create_connection(hub.address)) as sock:
            sock.settimeout(_WAIT_S)
            sock.sendall(head.encode() + b"400\r\n" + bytes(1_024) + b"\r\n0\r\n\r\n")
            assert b" 413 " in read_to_end(sock).split(b"\r\n")[0]
        assert not (hub.calls.home("alice") / "g").exists()
        until(lambda: hub.calls.parts("alice") == [])
    finally:
        hub.close()


def test_an_upload_cut_half_leaves_no_file(hub: HubProcess) -> None:
    with half_an_upload(hub, bytes(300_000), 400_000):
        until(lambda: hub.calls.parts("alice") != [])

    until(lambda: hub.calls.parts("alice") == [])
    assert not (hub.calls.home("alice") / "half").exists()


def test_a_client_that_leaves_ends_its_download(hub: HubProcess, plain: PlainClient) -> None:
    path = hub.calls.home("alice") / "big"
    with path.open("wb") as file:
        file.truncate(1 << 30)
    head = f"GET {content('big')} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer token-alice\r\n\r\n"
    with closing(socket.create_connection(hub.address)) as sock:
        sock.sendall(head.encode())
        assert sock.recv(1_000).startswith(b"HTTP/1.1 200")
    until(lambda: bool(hub.calls.cancelled))


def test_a_jail_that_sends_too_little_or_too_much_breaks_the_connection(hub: HubProcess) -> None:
    info = FileInfo("file", 10, 0, "1")
    for sent in (b"12345", b"123456789012345"):

        def answer(body: Body, sent: bytes = sent) -> Any:
            return info if isinstance(body, FileStat) else iter([FileChunk(sent[:4]), FileChunk(sent[4:])])

        hub.calls.instead = answer
        head = f"GET {content('f')} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer token-alice\r\n\r\n"
        with closing(socket.create_connection(hub.address)) as sock:
            sock.settimeout(_WAIT_S)
            sock.sendall(head.encode())
            body = read_to_end(sock).partition(b"\r\n\r\n")[2]
        assert len(body) < 10


def test_a_name_that_no_file_can_have_is_the_jails_fault(hub: HubProcess, plain: PlainClient) -> None:
    directory = FileInfo("directory", 0, 0, "1")
    for name, status in (("good", 200), ("\0zz", 502), ("\0c3\0a9", 502)):

        def answer(body: Body, name: str = name) -> Any:
            if isinstance(body, FileStat):
                return directory
            return iter([FileEntries((FileEntry(name, FileInfo("file", 1, 0)),))])

        hub.calls.instead = answer
        told = plain.ask("GET", "/v1/files")
        assert told.status == status
        assert status == 200 or told.error["code"] == "worker"


def test_an_upload_whose_jail_was_replaced_is_the_servers_fault(hub: HubProcess, plain: PlainClient) -> None:
    def answer(body: Body) -> Body | Failure:
        if isinstance(body, FileWrite) and not body.offset:
            return Done()
        return Failure("not_found", "this upload was forgotten: begin it again")

    hub.calls.instead = answer
    told = plain.ask("PUT", content("f"), bytes(2_000_000))
    assert (told.status, told.error["code"]) == (502, "worker")


def test_a_full_disk_and_a_lost_jail_have_their_own_answers(hub: HubProcess, plain: PlainClient) -> None:
    def full(body: Body) -> Body | Failure:
        limit = Failure("limit", "there is no room left on the disk")
        return limit if isinstance(body, FileWrite) else Failure("not_found", "there is nothing")

    hub.calls.instead = full
    assert plain.ask("PUT", content("f"), b"x").status == 413
    hub.calls.instead = lambda _: Failure("unavailable", "your jail could not be started", 5)
    lost = plain.ask("GET", "/v1/files")
    assert (lost.status, lost.headers["retry-after"]) == (503, "5")


def test_one_user_has_so_many_transfers_at_once(hub: HubProcess, plain: PlainClient) -> None:
    head = (
        f"PUT {content('f')} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer token-alice\r\n"
        "Content-Length: 9\r\n\r\n"
    )
    socks = [socket.create_connection(hub.address) for _ in range(6)]
    try:
        for sock in socks:
            sock.sendall(head.encode())
        until(lambda: len(hub.calls.asked) == 6)
        refused = plain.ask("GET", "/v1/files")
        assert (refused.status, refused.error["code"]) == (429, "too_many_requests")
    finally:
        for sock in socks:
            sock.close()
    until(lambda: plain.ask("GET", "/v1/files").status == 200)
