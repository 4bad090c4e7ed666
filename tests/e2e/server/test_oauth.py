"""An account elsewhere, connected with the real server by its command line and a browser."""

import json
import os
import re
import shutil
import signal
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.auth_server import SECRET, FakeAuthServer, running_auth_server
from tests.fakes.real_server import (
    LIMIT_S,
    UNATTACKED,
    Person,
    RealServer,
    command,
    free_ports,
    real_server,
    run_certosa,
    until,
)


@pytest.fixture(scope="module")
def auth() -> Iterator[FakeAuthServer]:
    with running_auth_server() as running:
        yield running


@pytest.fixture(scope="module")
def server(auth: FakeAuthServer) -> Iterator[RealServer]:
    with real_server({}, before=UNATTACKED, start=False) as server:
        (port,) = free_ports(1)
        public = f"http://127.0.0.1:{port}"
        auth.redirect_uri = f"{public}/v1/oauth/acme/callback"
        server._sections |= {"hub": {"public_url": public}, "oauth.acme": auth.section()}
        server.begin(port)
        server.wait_ready()
        certosa(server, "oauth secret acme", SECRET)
        yield server


@pytest.fixture(scope="module")
def dora(server: RealServer) -> Person:
    return server.new_user("dora")


def certosa(server: RealServer, line: str, value: str = "", person: Person | None = None) -> str:
    """What a command prints; AssertionError where it fails."""
    return run_certosa(server, line, value, person).stdout


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def consent(url: str) -> str:
    """What an authorization server sends a browser back to."""
    with pytest.raises(urllib.error.HTTPError) as sent_back:
        urllib.request.build_opener(_Stay).open(url, timeout=LIMIT_S)
    with sent_back.value as answer:
        assert answer.code == 302
        return str(answer.headers["Location"])


def kept(server: RealServer, person: Person, name: str) -> Any:
    """A credential as lists show it."""
    rows = json.loads(certosa(server, "credential list --json", person=person))["credentials"]
    return next(row for row in rows if row["name"] == name)


def visit(url: str, method: str = "GET") -> str:
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=LIMIT_S) as answer:
        text: str = answer.read().decode()
    return text


def test_an_account_is_connected_by_a_browser_and_survives_the_end_of_egress(
    server: RealServer, dora: Person, auth: FakeAuthServer
) -> None:
    assert "acme" in certosa(server, "credential providers", person=dora)
    line = "credential connect mail --with acme --path /v1/api --no-wait --json"
    begun = json.loads(certosa(server, line, person=dora))
    back = consent(begun["url"])
    assert "<b>dora</b>" in visit(back)
    assert "Connected" in visit(back, "POST")
    with pytest.raises(urllib.error.HTTPError) as again:
        visit(back, "POST")
    again.value.close()
    assert again.value.code == 400
    row = kept(server, dora, "mail")
    assert (row["name"], row["kind"], row["host"], row["path"]) == ("mail", "oauth2", "127.0.0.1", "/v1/api")
    assert row["grant"] == {"provider": "acme", "expires_s": row["grant"]["expires_s"], "lost": False,
                            "renewable": True}  # fmt: skip
    assert auth.families
    lines = server.admin.call("GET", "/v1/audit?user=dora&kind=credential_set")["lines"]
    assert ("egress", "mail", "connected with acme") in [
        (line["by"], line["on"], line["detail"]) for line in lines
    ]
    certosa(server, "key rotate")
    links = len(server.logged("egress_link_up"))
    os.kill(server.pid("egress"), signal.SIGKILL)
    server.wait_logged("egress_link_up", links + 1)
    assert kept(server, dora, "mail") == row


def test_an_account_is_connected_by_a_code_while_the_command_waits(
    server: RealServer, dora: Person, auth: FakeAuthServer
) -> None:
    line = ["credential", "connect", "tv", "--with", "acme", "--device"]
    waiting = subprocess.Popen(
        command("", "--config", str(server.config_path), *line),
        stdout=subprocess.PIPE, text=True, env=os.environ | {"CERTOSA_TOKEN": dora.token},
    )  # fmt: skip
    try:
        assert waiting.stdout is not None
        said = ""
        while "type in the code" not in said:
            more = waiting.stdout.readline()
            assert more, said
            said += more
        found = re.search(r"code  ([0-9A-F-]+)", said)
        assert found is not None
        auth.decide(found[1])
        rest, _ = waiting.communicate(timeout=LIMIT_S)
        assert "tv is connected with acme" in rest
        assert waiting.returncode == 0
    finally:
        waiting.kill()
        waiting.communicate()


def test_what_was_done_is_in_the_audit_log_and_a_copy_of_it_is_whole(
    server: RealServer, dora: Person, tmp_path: Path
) -> None:
    certosa(server, "credential connect notes --with acme --device --no-wait", person=dora)
    certosa(server, "provider add ollama")
    certosa(server, "provider remove ollama")
    secret = tmp_path / "passphrase"
    secret.write_text("a passphrase of many words")
    secret.chmod(0o600)
    certosa(server, f"backup {tmp_path / 'backup'} --passphrase-file {secret}")
    lines = server.admin.call("GET", "/v1/audit?limit=500")["lines"]
    said = {(line["by"], line["kind"], line["outcome"], line["who"], line["on"]) for line in lines}
    uid = f"uid:{os.geteuid()}"
    for outcome in ("asked", "done"):
        assert ("core", "credential_changed", outcome, "user:dora", "notes") in said
        assert ("core", "provider_set", outcome, uid, "ollama") in said
        assert ("core", "provider_removed", outcome, uid, "ollama") in said
        assert ("core", "backup_made", outcome, uid, str(tmp_path / "backup")) in said
    shutil.copytree(server.data_dir / "_keys" / "audit", tmp_path / "log")
    vault = server.data_dir / "_keys" / "vault.db"
    found = json.loads(certosa(server, f"audit verify {tmp_path / 'log'} --vault {vault} --json"))
    assert (found["ok"], found["faults"]) == (True, [])
    assert found["lines"] >= len(lines)


def test_a_reload_adds_a_provider(server: RealServer, dora: Person, auth: FakeAuthServer) -> None:
    server.write_config({"oauth.second": auth.section(client_auth="none", device_url="")})
    before = len(server.logged("config_used"))
    server.process.send_signal(1)
    until("the reload", lambda: len(server.logged("config_used")) > before)
    assert "second" in certosa(server, "credential providers", person=dora)
