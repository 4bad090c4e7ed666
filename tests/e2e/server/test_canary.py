"""A provider's key is in egress and nowhere else: not in logs, answers, databases or other memory."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import openai
import pytest

from tests.fakes.model_server import FakeModelServer, Script, running_model_server
from tests.fakes.real_server import Person, RealServer, below, new_person, real_server, with_model

CANARY = "sk-canary-7d1f4b0c9a8e4f62b3d5"
_CHUNK_BYTES = 4 << 20


@pytest.fixture(scope="module")
def shared_model() -> Iterator[FakeModelServer]:
    """Of this module's own: what others send theirs has other keys."""
    with running_model_server(keep_alive=False) as fake:
        yield fake


@pytest.fixture(scope="module")
def server(shared_model: FakeModelServer) -> Iterator[RealServer]:
    with real_server(with_model(shared_model.url), keys=f'fake = "{CANARY}"\n') as running:
        yield running


@pytest.fixture(scope="module")
def alice(server: RealServer) -> Person:
    return new_person(server, "alice")


@pytest.fixture(scope="module")
def used(server: RealServer, alice: Person, shared_model: FakeModelServer) -> list[str]:
    """The key was used, refused, and echoed by the upstream in every way; what the client was told."""
    answers = [alice.ask("hi", "kept", "fake").text, alice.run("env; cat /proc/*/environ /proc/*/cmdline")]
    echo = f"no such key: Bearer {CANARY}"
    shared_model.say(
        Script(status=401, error_body=f'{{"error": {{"message": "{echo}"}}}}'),
        Script(status=500, error_body=echo),
        Script(raw_events=(f'data: {{"error": {{"message": "{echo}"}}}}\n\n',)),
        Script(raw_events=(f"data: {{{CANARY}\n\n",)),
        Script(status=307, headers={"Location": f"http://127.0.0.1:1/{CANARY}"}),
    )
    for _ in range(5):
        with pytest.raises(openai.APIError) as raised:
            alice.ask("again", "kept", "fake")
        answers.append(f"{raised.value} {raised.value.body}")
    return answers


def test_the_key_is_sent_to_its_provider(used: list[str], model: FakeModelServer) -> None:
    assert len(used) == 7
    bearers = [r.headers["Authorization"] for r in model.requests if "Authorization" in r.headers]
    assert len(bearers) >= 6
    assert set(bearers) == {f"Bearer {CANARY}"}


def test_the_doctor_let_this_server_serve(server: RealServer) -> None:
    assert server.logged("doctor_passed")


def test_the_key_is_in_no_answer(used: list[str]) -> None:
    for answer in used:
        assert CANARY not in answer
        assert CANARY[3:] not in answer


def test_the_key_is_in_no_file_but_its_own(server: RealServer, used: list[str]) -> None:
    found = [path for path in files(server.directory) if CANARY.encode() in path.read_bytes()]
    assert found == [server.data_dir / "_keys" / "provider-keys.toml"]


def files(directory: Path) -> Iterator[Path]:
    for above, _, names in os.walk(directory):
        if Path(above).name != "_runtime":
            for name in names:
                path = Path(above) / name
                if path.is_file() and not path.is_symlink():
                    yield path


def test_the_key_is_in_no_command_line_and_no_environment(server: RealServer, used: list[str]) -> None:
    pids = [server.process.pid, *(p.pid for p in below(server.process.pid))]
    assert len(pids) >= 5
    looked_at = 0
    for pid in pids:
        with suppress(ProcessLookupError, FileNotFoundError):  # a jail's builder ends when it is built
            assert CANARY.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
            if os.geteuid() == 0:
                assert CANARY.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
            looked_at += 1
    assert looked_at >= 5


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may read the memory of these processes")
def test_the_key_is_in_the_memory_of_egress_alone(server: RealServer, alice: Person, used: list[str]) -> None:
    alice.run("true")
    egress = server.pid("egress")
    assert holds(egress, CANARY.encode())
    others = {server.process.pid, *(p.pid for p in below(server.process.pid))} - {egress}
    assert server.pid("core") in others
    assert len(others) >= 4
    assert [pid for pid in others if holds(pid, CANARY.encode())] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may read the memory of these processes")
def test_the_master_key_is_in_the_memory_of_egress_at_most(server: RealServer, used: list[str]) -> None:
    key = (server.data_dir / "_keys" / "master.key").read_bytes()
    assert len(key) >= 16
    others = {server.process.pid, *(p.pid for p in below(server.process.pid))} - {server.pid("egress")}
    assert [pid for pid in others if holds(pid, key)] == []


def holds(pid: int, needle: bytes) -> bool:
    """Whether any readable part of a process's memory has these bytes; one that has ended has none."""
    try:
        return _finds(pid, needle)
    except (ProcessLookupError, FileNotFoundError):
        return False


def _finds(pid: int, needle: bytes) -> bool:
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in maps:
            found = re.match(r"([0-9a-f]+)-([0-9a-f]+) (r)", line)
            if found is None or "[v" in line:
                continue
            start, end = int(found[1], 16), int(found[2], 16)
            tail = b""
            while start < end:
                try:
                    memory.seek(start)
                    data = memory.read(min(_CHUNK_BYTES, end - start))
                except (OSError, ValueError):
                    break
                if not data:
                    break
                if needle in tail + data:
                    return True
                tail = data[-len(needle) :]
                start += len(data)
    return False
