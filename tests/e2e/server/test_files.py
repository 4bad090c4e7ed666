"""People's files over HTTP, through their real jails."""

import http.client
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.fakes.plain_client import Answer, PlainClient
from tests.fakes.real_server import LIMIT_S, Person, RealServer, real_server, until, workers

_BIG = 100_000_000
_GROWTH = 8_000_000


def ask(person: Person, method: str, path: str, body: Any = None, **headers: str) -> Answer:
    client = PlainClient(person.server.url, {"Authorization": f"Bearer {person.token}"})
    return client.ask(method, path, body, headers)


def content(path: str) -> str:
    return f"/v1/files/content?path={quote(path)}"


class Memory:
    """How far a process's resident memory rose above what it was."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # proc(5): the peak becomes the present
        self._before = self._peak()

    def growth(self) -> int:
        return self._peak() - self._before

    def _peak(self) -> int:
        status = Path(f"/proc/{self._pid}/status").read_text()
        return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM"))


@contextmanager
def connection(person: Person) -> Iterator[http.client.HTTPConnection]:
    made = http.client.HTTPConnection("127.0.0.1", person.server.hub_port, timeout=LIMIT_S)
    try:
        yield made
    finally:
        made.close()


def send_big(person: Person, path: str, size: int, announced: int) -> http.client.HTTPConnection:
    made = http.client.HTTPConnection("127.0.0.1", person.server.hub_port, timeout=LIMIT_S)
    made.putrequest("PUT", content(path))
    made.putheader("Authorization", f"Bearer {person.token}")
    made.putheader("Content-Length", str(announced))
    made.endheaders()
    piece = os.urandom(1 << 20)
    while size:
        made.send(piece[:size])
        size -= min(size, len(piece))
    return made


def test_a_hundred_megabytes_go_up_and_down_and_core_stays_small(server: RealServer, alice: Person) -> None:
    # what the process takes once for its first large transfers is not what a byte more costs
    ask(alice, "PUT", content("warm"), os.urandom(40_000_000))
    ask(alice, "GET", content("warm"))
    memory = Memory(server.pid("core"))

    up = send_big(alice, "big", _BIG, _BIG)
    assert up.getresponse().read()
    up.close()
    assert memory.growth() < _GROWTH
    assert (alice.home / "big").stat().st_size == _BIG

    with connection(alice) as down:
        down.request("GET", content("big"), headers={"Authorization": f"Bearer {alice.token}"})
        answer = down.getresponse()
        size = 0
        while data := answer.read(1 << 20):
            size += len(data)
    assert size == _BIG
    assert memory.growth() < _GROWTH
    ask(alice, "DELETE", "/v1/files?path=big")


def test_what_the_agent_writes_its_user_reads_and_the_other_way(alice: Person, bob: Person) -> None:
    alice.run("mkdir -p d && printf hello > d/from-agent")
    assert ask(alice, "GET", content("d/from-agent")).body == b"hello"

    assert ask(alice, "PUT", content("d/from-user"), b"good day").status == 201
    assert "good day" in alice.run("cat d/from-user")
    assert ask(bob, "GET", content("d/from-user")).status == 404
    assert "d" not in [entry["name"] for entry in ask(bob, "GET", "/v1/files").json["data"]]
    if os.geteuid() == 0:
        assert (alice.home / "d/from-user").stat().st_uid == alice.home.stat().st_uid


def test_no_link_or_path_leads_to_another_users_file(server: RealServer, alice: Person, bob: Person) -> None:
    bob.put("secret", "of bob")
    there = bob.home / "secret"
    alice.run(
        f"ln -sf {there} to-bob; ln -sfn {bob.home} home-of-bob; ln -sf /etc/passwd passwd; ln -sfn / root"
    )
    for path in ("to-bob", "home-of-bob/secret", "passwd", "root/etc/passwd", f"root{there}", str(there)):
        assert ask(alice, "GET", content(path)).status in (400, 403, 404)
        assert ask(alice, "PUT", content(path), b"x").status != 200
        assert ask(alice, "DELETE", f"/v1/files?path={quote(path)}&recursive=true").status in (200, 403, 404)
    assert there.read_text() == "of bob"
    assert ask(bob, "GET", content("secret")).body == b"of bob"


def test_what_is_no_file_is_refused_at_once(alice: Person) -> None:
    alice.run("mkfifo -m 600 fifo; ln -sf /dev/zero zero; ln -sf /proc/self/mem memory")
    for path in ("fifo", "zero", "memory"):
        assert ask(alice, "GET", content(path)).status in (400, 403)
        assert ask(alice, "PUT", content(path), b"x").status in (400, 403)


@pytest.mark.parametrize("where", ["left", "killed"])
def test_an_upload_cut_half_leaves_no_file(server: RealServer, alice: Person, where: str) -> None:
    parts = alice.home / ".certosa" / "uploads"
    sent = send_big(alice, "half", 1_000_000, 2_000_000)
    until("the upload's first chunk", lambda: parts.is_dir() and os.listdir(parts))
    if where == "killed":
        # temporaries of a killed worker are the next one's to sweep up
        for process in workers(server):
            os.kill(process.pid, signal.SIGKILL)
        sent.send(bytes(1_000_000))
        assert sent.getresponse().status == 502
        assert ask(alice, "PUT", content("next"), b"x").status in (200, 201)
    sent.close()
    until("the temporary's end", lambda: not os.listdir(parts))
    assert not (alice.home / "half").exists()


def test_a_file_larger_than_a_jail_may_have_is_refused() -> None:
    sections = {"jail": {"file_bytes": 1_000_000}, "hub": {"max_upload_bytes": 3_000_000}}
    with real_server(sections) as server:
        carol = server.new_user("carol")
        assert ask(carol, "PUT", content("f"), bytes(900_000)).status == 201
        refused = ask(carol, "PUT", content("g"), bytes(2_000_000))
        assert refused.error["code"] == "limit"
        assert refused.status == 413
        assert ask(carol, "PUT", content("h"), bytes(3_000_001)).error["code"] == "body_too_large"
        assert os.listdir(carol.home / ".certosa" / "uploads") == []


def test_a_hundred_thousand_entries_are_listed_and_deleted(server: RealServer, alice: Person) -> None:
    alice.python(
        "import os\nos.makedirs('many', exist_ok=True)\n"
        "for i in range(100000): os.close(os.open(f'many/{i:06}', os.O_CREAT | os.O_WRONLY))"
    )
    memory = Memory(server.pid("core"))
    found = ask(alice, "GET", "/v1/files?path=many").json["data"]
    assert len(found) == 100_000
    assert memory.growth() < _GROWTH
    assert ask(alice, "DELETE", "/v1/files?path=many&recursive=true").status == 200
    assert not (alice.home / "many").exists()
