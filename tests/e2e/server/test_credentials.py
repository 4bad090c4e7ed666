"""Credentials of the real server: by its command line, for providers, under a key that is kept elsewhere."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.model_server import FakeModelServer
from tests.fakes.real_server import (
    LIMIT_S,
    UNATTACKED,
    Person,
    RealServer,
    below,
    command,
    new_person,
    real_server,
    run_certosa,
    with_model,
)
from tests.fakes.search import Needles

OPERATORS = "sk-operators-canary-0a1b2c3d"
OWN = "sk-alices-canary-4e5f6a7b"


@pytest.fixture(scope="module")
def server(shared_model: FakeModelServer) -> Iterator[RealServer]:
    with real_server(with_model(shared_model.url), before=UNATTACKED, start=False) as server:
        key = server.directory / "elsewhere.key"
        key.write_bytes(bytes(range(32)))
        key.chmod(0o600)
        server._sections["vault"] = {"master_key": str(key)}
        server.start()
        yield server


@pytest.fixture(scope="module")
def alice(server: RealServer) -> Person:
    return new_person(server, "alice")


@pytest.fixture(scope="module")
def bob(server: RealServer) -> Person:
    return new_person(server, "bob")


def certosa(server: RealServer, line: str, value: str = "", person: Person | None = None) -> str:
    """What a command prints; AssertionError where it fails."""
    done = run_certosa(server, line, value, person)
    assert value not in done.stdout or not value
    return done.stdout


def test_a_chat_uses_the_users_own_key_before_the_operators(
    server: RealServer, alice: Person, bob: Person, model: FakeModelServer
) -> None:
    def sent(person: Person) -> str | None:
        person.ask("hi", model="fake")
        return model.requests[-1].headers.get("Authorization")

    certosa(server, "credential set --operator --provider fake", OPERATORS)
    assert (sent(alice), sent(bob)) == (f"Bearer {OPERATORS}", f"Bearer {OPERATORS}")
    certosa(server, "credential set --provider fake", OWN, alice)
    assert (sent(alice), sent(bob)) == (f"Bearer {OWN}", f"Bearer {OPERATORS}")
    listed = json.loads(certosa(server, "credential list --json", person=alice))
    assert [row["name"] for row in listed["credentials"]] == ["provider:fake"]
    assert "provider:fake" in certosa(server, "credential list --operator")
    certosa(server, "credential delete --provider fake", person=alice)
    assert sent(alice) == f"Bearer {OPERATORS}"
    certosa(server, "credential delete --operator --provider fake")
    assert sent(alice) is None


def test_values_set_by_the_command_are_in_egress_alone(
    server: RealServer, alice: Person, bob: Person, model: FakeModelServer
) -> None:
    certosa(server, "credential set --operator --provider fake", OPERATORS)
    alice.ask("hi", model="fake")
    assert model.requests[-1].headers["Authorization"] == f"Bearer {OPERATORS}"
    needles = Needles(OPERATORS)
    assert needles.in_files(server.directory) == []
    if os.geteuid() != 0:
        return  # only root may read the memory of these processes
    egress = server.pid("egress")
    assert needles.in_memory(egress)
    others = {server.process.pid, *(p.pid for p in below(server.process.pid))} - {egress}
    assert server.pid("core") in others
    assert [pid for pid in others if needles.in_memory(pid)] == []


def test_the_key_that_is_kept_elsewhere_is_the_only_one(server: RealServer, alice: Person) -> None:
    assert not (server.data_dir / "_keys" / "master.key").exists()
    done = subprocess.run(
        command("", "--config", str(server.config_path), "key", "rotate"),
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "from outside" in done.stderr


def test_a_server_whose_key_others_may_read_does_not_start(tmp_path: Path) -> None:
    with real_server({}, before=UNATTACKED, start=False) as server:
        key = server.directory / "master.key"
        key.write_bytes(bytes(32))
        key.chmod(0o644)
        server._sections["vault"] = {"master_key": str(key)}
        server.begin()
        assert server.wait() == 1
        assert "lets others in" in server.log_path.read_text()


def test_systemds_credential_is_used_and_a_key_of_its_own_rotates(tmp_path: Path) -> None:
    with real_server({}, before=UNATTACKED, start=False) as server:
        handed = server.directory / "handed"
        handed.mkdir()
        (handed / "certosa-master-key").write_bytes(os.urandom(32))
        (handed / "certosa-master-key").chmod(0o440)
        server._before = f"{UNATTACKED}; import os; os.environ['CREDENTIALS_DIRECTORY'] = {str(handed)!r}"
        server.start()
        carol = server.new_user("carol")
        carol.ask("hi", session="kept")
        assert not (server.data_dir / "_keys" / "master.key").exists()
        assert server.stop() == 0
        # the same key as the vault's own, which may then be rotated while the server runs
        own = server.data_dir / "_keys" / "master.key"
        own.write_bytes((handed / "certosa-master-key").read_bytes())
        own.chmod(0o600)
        if os.geteuid() == 0:
            info = own.parent.stat()
            os.chown(own, info.st_uid, info.st_gid)
        server._before = UNATTACKED
        server.start()
        before = own.read_bytes()
        assert "1 users" in certosa(server, "key rotate")
        assert own.read_bytes() != before
        carol.ask("hi", session="kept")
