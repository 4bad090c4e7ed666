"""``/admin/v1`` on the operators' listener: an administrator's token opens it, a user's does not."""

from pathlib import Path

import pytest

from core.config import AdminSection
from core.hub import AdministrationError
from tests.fakes.hub_process import HubProcess
from tests.fakes.plain_client import PlainClient

READS = ("status", "health", "pool", "config", "users", "tokens", "admin-tokens", "providers", "sessions")


@pytest.fixture
def root(hub: HubProcess) -> PlainClient:
    return PlainClient(hub.admin_url, {"Authorization": "Bearer admin-root"})


@pytest.mark.parametrize("what", READS)
def test_an_administrators_token_opens_it_and_a_users_or_none_does_not(
    hub: HubProcess, root: PlainClient, what: str
) -> None:
    path = f"/admin/v1/{what}"
    assert root.ask("GET", path).status == 200
    user = PlainClient(hub.admin_url, {"Authorization": "Bearer token-alice"})
    assert user.ask("GET", path).error["code"] == "invalid_token"
    assert PlainClient(hub.admin_url).ask("GET", path).error["code"] == "missing_token"


def test_an_administrators_token_opens_nothing_of_users_and_a_users_does(hub: HubProcess) -> None:
    root = PlainClient(hub.url, {"Authorization": "Bearer admin-root"})
    alice = PlainClient(hub.url, {"Authorization": "Bearer token-alice"})
    for path in ("/v1/models", "/v1/sessions", "/v1/agents"):
        assert root.ask("GET", path).status == 401
        assert alice.ask("GET", path).status == 200


def test_what_is_not_there_says_so_to_administrators_alone(hub: HubProcess, root: PlainClient) -> None:
    assert root.ask("GET", "/admin/v1/nowhere").status == 404
    assert PlainClient(hub.admin_url).ask("GET", "/admin/v1/nowhere").status == 401
    assert PlainClient(hub.url).ask("GET", "/admin/v1/users").status == 404


def test_users_and_tokens_are_managed_as_on_the_socket(root: PlainClient) -> None:
    assert root.ask("POST", "/admin/v1/users", {"name": "carol"}).status == 201
    made = root.ask("POST", "/admin/v1/users/carol/tokens", {"label": "laptop"})
    assert (made.status, made.json["token"]) == (201, "token-carol")
    admin = root.ask("POST", "/admin/v1/admin-tokens", {"label": "spare"})
    assert (admin.status, admin.json["token"]) == (201, "admin-adm1")
    assert [t["label"] for t in root.ask("GET", "/admin/v1/admin-tokens").json["tokens"]] == ["spare"]
    assert root.ask("DELETE", f"/admin/v1/tokens/{admin.json['token_id']}").status == 200
    assert root.ask("GET", "/admin/v1/admin-tokens").json == {"tokens": []}
    assert root.ask("GET", "/admin/v1/users/carol/sessions").json == {"user": "carol", "sessions": 1}
    assert root.ask("DELETE", "/admin/v1/users/carol").status == 200


def test_metrics_may_be_kept_for_administrators(tmp_path: Path) -> None:
    hub = HubProcess(tmp_path, admin=AdminSection(open_metrics=False))
    try:
        assert PlainClient(hub.admin_url).ask("GET", "/metrics").status == 401
        assert PlainClient(hub.admin_url, {"x-api-key": "admin-root"}).ask("GET", "/metrics").status == 200
        assert PlainClient(hub.admin_url).ask("GET", "/healthz").status == 200
    finally:
        hub.close()


def test_a_vault_that_cannot_answer_is_503_and_no_bad_token(hub: HubProcess, root: PlainClient) -> None:
    alice = PlainClient(hub.url, {"Authorization": "Bearer token-alice"})
    hub.book.broken = True
    for answer in (root.ask("GET", "/admin/v1/users"), alice.ask("GET", "/v1/models")):
        assert (answer.status, answer.error["code"]) == (503, "unavailable")
        assert answer.headers["retry-after"] == "2"
    hub.book.broken = False
    assert root.ask("GET", "/admin/v1/users").status == 200
    assert alice.ask("GET", "/v1/models").status == 200


def test_what_cannot_be_done_just_now_says_when_to_try_again(
    hub: HubProcess, root: PlainClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(on: bool) -> None:
        raise AdministrationError("unavailable", "the pool does not answer; try again")

    assert root.ask("POST", "/admin/v1/pool/drain").status == 200
    monkeypatch.setattr(hub.administration, "drain_pool", refuse)
    answer = root.ask("POST", "/admin/v1/pool/drain")
    assert (answer.status, answer.error["code"]) == (503, "unavailable")
    assert int(answer.headers["retry-after"]) > 0
