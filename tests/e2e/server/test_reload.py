"""SIGHUP and SIGUSR1: a running server takes another configuration, and says what it is doing."""

import http.client
import os
import signal
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.fakes.certificates import Made, make_certificate
from tests.fakes.model_server import FakeModelServer, running_model_server
from tests.fakes.outside_server import OutsideServer
from tests.fakes.plain_client import PlainClient
from tests.fakes.real_server import UNATTACKED, Person, RealServer, own_directory, until, with_model

PAGE = "https://chat.example.org"
KEY = "sk-the-key-of-the-second-provider"


@pytest.fixture(scope="module")
def upstream() -> Iterator[FakeModelServer]:
    with running_model_server(keep_alive=False) as fake:
        yield fake


@pytest.fixture(scope="module")
def certificate() -> Made:
    return make_certificate()


@pytest.fixture(scope="module")
def server(certificate: Made) -> Iterator[RealServer]:
    """Its admin listener speaks TLS."""
    with own_directory() as directory:
        crt, key = certificate.write(directory)
        running = RealServer(
            directory, {"admin": {"tls_certificate": crt, "tls_key": key}}, before=UNATTACKED
        )
        try:
            running.start()
            yield running
        finally:
            running.stop()


@pytest.fixture(scope="module")
def alice(server: RealServer) -> Person:
    return server.new_user("alice")


def _reload(server: RealServer, more: Mapping[str, Mapping[str, Any]], raw: str = "") -> dict[str, Any]:
    """Write the file and have it read; returns the spawner's line about it."""
    done = len(server.logged("config_reloaded")) + len(server.logged("reload_failed"))
    server.write_config(more, raw)
    server.process.send_signal(signal.SIGHUP)

    def look() -> dict[str, Any] | None:
        lines = [*server.logged("config_reloaded"), *server.logged("reload_failed")]
        return max(lines, key=lambda line: str(line["timestamp"])) if len(lines) > done else None

    return until("the reload", look)


def _used(server: RealServer) -> int:
    return min(len(server.logged("config_used", process=name)) for name in ("core", "egress"))


def _reload_well(server: RealServer, more: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    before = _used(server)
    line = _reload(server, more)
    if "send SIGHUP again" in line.get("reason", ""):
        line = _reload(server, more)
    assert line["event"] == "config_reloaded", line
    until("core and egress to use it", lambda: _used(server) > before)
    return line


def _origin(server: RealServer) -> str | None:
    answer = PlainClient(server.url).ask("GET", "/healthz", headers={"Origin": PAGE})
    return answer.headers.get("access-control-allow-origin")


def test_what_is_safe_counts_at_once_and_the_rest_is_named(server: RealServer) -> None:
    _reload_well(server, {})
    assert _origin(server) is None
    line = _reload_well(server, {"access": {"origins": [PAGE]}, "sessions": {"keep_days": 7}})
    assert line["changed"] == ["access.free_failures", "access.origins"]
    assert line["after_restart"] == ["sessions.keep_days"]
    assert _origin(server) == PAGE


def test_a_bad_file_is_refused_whole_and_the_old_one_stays(server: RealServer) -> None:
    _reload_well(server, {"access": {"origins": [PAGE]}})
    line = _reload(server, {}, "[hub]\nmax_turns = 'many'\n")
    assert line["event"] == "reload_failed"
    assert "hub.max_turns" in line["reason"]
    assert line["level"] == "error"
    assert _origin(server) == PAGE
    assert _reload_well(server, {})["changed"]
    assert _origin(server) is None


def test_a_provider_and_its_key_are_added_while_chats_go_on(
    server: RealServer, alice: Person, upstream: FakeModelServer
) -> None:
    alice.add_agent("fake", 'provider = "fake"\nmodel = "echo"\n')
    with pytest.raises(openai.APIStatusError):
        alice.ask("hello", model="fake")
    keys = server.data_dir / "_keys" / "provider-keys.toml"
    keys.write_text(f'fake = "{KEY}"\n')
    keys.chmod(0o600)
    _reload_well(server, with_model(upstream.url))
    assert alice.ask("hello", model="fake").finish == "stop"
    assert upstream.requests[-1].headers["Authorization"] == f"Bearer {KEY}"
    keys.write_text("fake = not toml")
    line = _reload(server, with_model(upstream.url))
    assert (line["event"], KEY in line["reason"]) == ("reload_failed", False)
    assert "provider key file" in line["reason"]
    assert alice.ask("hello", model="fake").finish == "stop"
    keys.unlink()
    line = _reload(server, {})
    assert (line["event"], "send SIGHUP again" in line["reason"]) == ("reload_failed", True)
    _reload_well(server, with_model(upstream.url))
    # without its key the model server is asked all the same; a file that lacks it all is asked for twice
    assert alice.ask("hello", model="fake").finish == "stop"
    _reload_well(server, {})
    with pytest.raises(openai.APIStatusError):
        alice.ask("hello", model="fake")


def test_a_rule_for_requests_outside_counts_from_the_next_fetch(
    server: RealServer, shared_outside: OutsideServer
) -> None:
    hana = server.new_user("hana")
    _reload_well(server, {})
    url = f"{shared_outside.url}/hello"
    assert "no rule lets the agent GET" in hana.ask(f"fetch {url}").output
    rule = {
        "host": "127.0.0.1", "scheme": "http", "port": shared_outside.port, "networks": ["127.0.0.0/8"],
    }  # fmt: skip
    assert _reload_well(server, {"egress": {"allow": [rule]}})["changed"] == ["egress.allow"]
    assert "hello from outside" in hana.ask(f"fetch {url}").output
    _reload_well(server, {})
    assert "no rule lets the agent GET" in hana.ask(f"fetch {url}").output


def test_core_started_again_has_what_was_read_last(server: RealServer) -> None:
    _reload_well(server, {"access": {"origins": [PAGE]}})
    before = len(server.logged("core_started"))
    os.kill(server.pid("core"), signal.SIGKILL)
    server.wait_logged("core_started", before + 1)
    server.wait_ready()
    assert _origin(server) == PAGE


def _serial(server: RealServer, trusted: Made) -> int:
    context = ssl.create_default_context(cadata=trusted.certificate.decode())
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    connection = http.client.HTTPSConnection("127.0.0.1", server.admin_port, timeout=20, context=context)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_renewed_certificate_is_taken_and_one_that_will_not_do_is_not(
    server: RealServer, certificate: Made
) -> None:
    assert _serial(server, certificate) == 200
    renewed = make_certificate()
    renewed.write(server.directory)
    _reload_well(server, {})
    assert _serial(server, renewed) == 200
    with pytest.raises(ssl.SSLCertVerificationError):
        _serial(server, certificate)
    key = Path(server.directory / "tls.key")
    key.write_bytes(certificate.key)  # of another certificate
    assert "tls_key" in _reload(server, {})["reason"]
    key.write_bytes(renewed.key)
    key.chmod(0o644)
    assert "can be read by anybody" in _reload(server, {})["reason"]
    key.chmod(0o600)
    assert _serial(server, renewed) == 200
    _reload_well(server, {})


def test_sigusr1_says_what_every_process_is_doing_and_no_secret(server: RealServer, alice: Person) -> None:
    alice.ask("remember that the password is xyzzy-plugh", session="kept")
    count = {name: len(server.logged("state_dumped", process=name)) for name in ("spawner", "core", "egress")}
    server.process.send_signal(signal.SIGUSR1)
    texts = {}
    for name, before in count.items():
        line = server.wait_logged("state_dumped", before + 1, process=name)
        path = Path(line["path"])
        assert path.stat().st_mode & 0o777 == 0o600
        texts[name] = path.read_text()
        assert "most recent call first" in texts[name]
        assert "== end" in texts[name]
        for secret in (
            alice.token,
            "xyzzy-plugh",
            KEY,
            (server.data_dir / "_keys" / "first-admin-token").read_text(),
        ):
            assert secret.strip() not in texts[name]
    assert '"user": "alice"' in texts["core"]
    assert '"mailbox"' in texts["core"]
    assert "storage-0" in texts["core"] or "storage" in texts["core"]
    assert "-- task" in texts["core"]
    assert '"breaker": "closed"' in texts["egress"]
    assert '"fetches": []' in texts["egress"]
    assert '"phase": "running"' in texts["spawner"]
    assert alice.ask("list files").finish == "stop", "and all of it goes on"


def test_limits_of_a_day_count_at_once(server: RealServer) -> None:
    _reload_well(server, {})
    gina = server.new_user("gina")
    assert gina.ask("help").finish == "stop"
    assert _reload_well(server, {"usage.hard": {"requests": 0}})["changed"] == ["usage.hard.requests"]
    with pytest.raises(openai.RateLimitError) as raised:
        gina.ask("help")
    assert raised.value.code == "insufficient_quota"
    _reload_well(server, {})
    assert gina.ask("help").finish == "stop"
    assert server.admin.call("GET", "/v1/audit?kind=config_reloaded")["lines"]
