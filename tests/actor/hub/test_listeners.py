"""The operators' listener and the command line's socket."""

import os
import socket

import pytest

from core.egress.messages import TokenInfo
from core.hub import admin_access
from tests.fakes.hub_process import HubProcess
from tests.fakes.plain_client import PlainClient


@pytest.fixture
def command(hub: HubProcess) -> PlainClient:
    return PlainClient(str(hub.command_path))


def test_health_readiness_and_metrics_are_on_the_operators_listener(hub: HubProcess) -> None:
    operator = PlainClient(hub.admin_url)
    assert operator.ask("GET", "/healthz").json == {"ok": True}
    assert operator.ask("GET", "/readyz").json == {"ready": True, "missing": []}
    hub.missing.append("egress")
    waiting = operator.ask("GET", "/readyz")
    assert (waiting.status, waiting.json["missing"]) == (503, ["egress"])
    metrics = operator.ask("GET", "/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    assert b"certosa_turns_started_total 0.0" in metrics.body
    assert b'certosa_http_requests_total{route="health",status="2xx"} 2.0' in metrics.body


def test_the_operators_listener_serves_no_clients_and_no_administration(hub: HubProcess) -> None:
    operator = PlainClient(hub.admin_url, {"Authorization": "Bearer token-alice"})
    for path in ("/v1/models", "/v1/users", "/v1/status"):
        assert operator.ask("GET", path).status == 401
    administrator = PlainClient(hub.admin_url, {"Authorization": "Bearer admin-root"})
    for path in ("/v1/models", "/v1/users", "/v1/status"):
        assert administrator.ask("GET", path).status == 404


def test_users_are_added_listed_disabled_enabled_and_deleted(command: PlainClient) -> None:
    made = command.ask("POST", "/v1/users", {"name": "carol"})
    assert (made.status, made.json["name"], made.json["disabled"]) == (201, "carol", False)
    assert command.ask("POST", "/v1/users", {"name": "carol"}).status == 409
    assert command.ask("POST", "/v1/users/carol/disable").status == 200
    assert command.ask("GET", "/v1/users").json["users"][0]["disabled"] is True
    assert command.ask("POST", "/v1/users/carol/enable").status == 200
    assert command.ask("GET", "/v1/users").json["users"][0]["disabled"] is False
    assert command.ask("DELETE", "/v1/users/carol").status == 200
    gone = command.ask("DELETE", "/v1/users/carol")
    assert (gone.status, gone.error["code"]) == (404, "not_found")


def test_tokens_are_made_listed_and_revoked(command: PlainClient, hub: HubProcess) -> None:
    command.ask("POST", "/v1/users", {"name": "carol"})
    made = command.ask("POST", "/v1/users/carol/tokens", {"label": "laptop"})
    assert (made.status, made.json) == (201, {"token_id": "tok0", "token": "token-carol"})
    hub.administration.tokens["other"] = TokenInfo("other", "dave", "", 1, None)
    mine = command.ask("GET", "/v1/users/carol/tokens").json["tokens"]
    assert [token["label"] for token in mine] == ["laptop"]
    assert len(command.ask("GET", "/v1/tokens").json["tokens"]) == 2
    assert command.ask("DELETE", "/v1/tokens/tok0").status == 200
    assert command.ask("DELETE", "/v1/tokens/tok0").status == 404
    assert command.ask("POST", "/v1/users/nobody/tokens", {}).status == 404


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"name": 5}', b'{"nome": "x"}', b"\xff", b"[" * 50_000, b""])
def test_a_command_that_is_none_is_a_400(command: PlainClient, body: bytes) -> None:
    assert command.ask("POST", "/v1/users", body).error["type"] == "invalid_request_error"


def test_a_bug_of_ours_is_a_500_with_an_id_and_no_details(
    command: PlainClient, hub: HubProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def crash() -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(hub.administration, "status", crash)
    answer = command.ask("GET", "/v1/status")
    assert answer.status == 500
    assert answer.headers["x-request-id"] in answer.error["message"]
    assert "secret" not in answer.error["message"]


def test_the_command_socket_refuses_another_uid(
    command: PlainClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command.ask("GET", "/v1/status").status == 200
    monkeypatch.setattr(admin_access, "_peer_uid", lambda _: 12_345)
    refused = command.ask("POST", "/v1/users", {"name": "mallory"})
    assert (refused.status, refused.error["code"]) == (403, "forbidden")
    assert command.ask("GET", "/v1/nowhere").status == 403
    monkeypatch.undo()
    assert command.ask("GET", "/v1/users").json == {"users": []}


def test_the_kernel_says_who_is_at_the_other_end() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        assert admin_access._peer_uid(ours) == os.getuid()
