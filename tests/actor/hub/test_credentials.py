"""/v1/credentials over real sockets: whose they are, what is refused, and that no value comes back."""

import base64
import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from core.cli.admin import AdminClient
from core.cli.failure import CommandFailed
from core.vault.box import seal_to
from core.vault.terms import CredentialTerms
from tests.fakes.hub_process import HubProcess

VALUE = "canary-5f0e1d2c3b4a"
TERMS = {"host": "api.example.com", "parameter": "X-Api-Key"}


def _call(hub: HubProcess, method: str, path: str, body: Any = None, token: str = "token-alice") -> Any:
    request = urllib.request.Request(
        hub.url + path,
        None if body is None else json.dumps(body).encode(),
        {"Authorization": f"Bearer {token}"},
        method=method,
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_a_user_sets_lists_and_deletes_their_own(hub: HubProcess) -> None:
    one = "/v1/credentials/api"
    assert _call(hub, "PUT", one, {**TERMS, "value": VALUE}) == (
        201, {"object": "credential", "name": "api", "version": 1},
    )  # fmt: skip
    assert hub.credentials.kept["alice", "api"][1] == VALUE
    assert _call(hub, "PUT", one, {**TERMS, "value": VALUE})[0] == 200
    status, listed = _call(hub, "GET", "/v1/credentials")
    assert status == 200
    (row,) = listed["data"]
    assert (row["name"], row["host"], row["parameter"], row["kind"]) == (
        "api", "api.example.com", "X-Api-Key", "key",
    )  # fmt: skip
    assert VALUE not in json.dumps(listed)
    assert _call(hub, "GET", "/v1/credentials", token="token-bob")[1]["data"] == []
    assert _call(hub, "DELETE", one, token="token-bob")[0] == 404
    assert _call(hub, "DELETE", one)[0] == 200
    assert _call(hub, "DELETE", one)[0] == 404


def test_the_list_says_which_lie_in_their_users_jail(hub: HubProcess) -> None:
    for name in ("signing-key", "other"):
        for token in ("token-alice", "token-bob"):
            assert _call(hub, "PUT", f"/v1/credentials/{name}", {**TERMS, "value": VALUE}, token)[0] == 201

    def scopes(token: str) -> dict[str, tuple[str, str | None]]:
        rows = _call(hub, "GET", "/v1/credentials", token=token)[1]["data"]
        return {row["name"]: (row["scope"], row["mounted_at"]) for row in rows}

    assert scopes("token-alice") == {
        "signing-key": ("mount", "/run/credentials/signing-key"), "other": ("broker", None),
    }  # fmt: skip
    assert scopes("token-bob") == {"signing-key": ("broker", None), "other": ("broker", None)}


def test_a_token_that_changes_is_never_said_to_lie_there(hub: HubProcess) -> None:
    terms = CredentialTerms(kind="oauth2", host="api.example.com")
    hub.credentials.kept["alice", "signing-key"] = terms, ""

    (row,) = _call(hub, "GET", "/v1/credentials")[1]["data"]

    assert (row["kind"], row["scope"], row["mounted_at"]) == ("oauth2", "broker", None)


def test_a_sealed_value_passes_the_hub_unread(hub: HubProcess) -> None:
    key = base64.b64decode(_call(hub, "GET", "/v1/credential-key")[1]["key"])
    sealed = base64.b64encode(seal_to(key, "api", VALUE)).decode()
    assert _call(hub, "PUT", "/v1/credentials/api", {**TERMS, "sealed": sealed})[0] == 201
    assert hub.credentials.kept["alice", "api"][1] == VALUE


@pytest.mark.parametrize(
    "body",
    [
        TERMS,
        {**TERMS, "value": VALUE, "sealed": "AAAA"},
        {**TERMS, "value": VALUE, "colour": VALUE},
        {**TERMS, "value": {VALUE: VALUE}},
        {**TERMS, "value": VALUE, "kind": "oauth9"},
        {**TERMS, "value": VALUE * 500},
        {**TERMS, "sealed": f"{VALUE}%%"},
        {**TERMS, "sealed": "\u009f\u00b5"},
        [VALUE],
    ],
)
def test_a_body_that_is_none_is_refused_without_its_value(hub: HubProcess, body: Any) -> None:
    status, answer = _call(hub, "PUT", "/v1/credentials/api", body)
    assert status == 400
    assert VALUE not in json.dumps(answer)
    assert hub.credentials.kept == {}


def test_without_a_token_nothing_is_told(hub: HubProcess) -> None:
    for method, path in (
        ("GET", "/v1/credentials"), ("PUT", "/v1/credentials/a"), ("DELETE", "/v1/credentials/a"),
        ("GET", "/v1/credential-key"),
    ):  # fmt: skip
        assert _call(hub, method, path, token="wrong")[0] == 401


def test_the_vaults_refusal_is_the_answer(hub: HubProcess) -> None:
    status, answer = _call(hub, "PUT", "/v1/credentials/-x", {**TERMS, "value": VALUE})
    assert (status, answer["error"]["code"]) == (400, "invalid")


def test_the_operators_are_set_on_the_operators_socket_alone(hub: HubProcess) -> None:
    admin = _admin(hub)
    admin.call("PUT", "/v1/credentials/provider%3Amain", {"value": VALUE})
    assert hub.credentials.kept["", "provider:main"][1] == VALUE
    assert [row["name"] for row in admin.call("GET", "/v1/credentials")["data"]] == ["provider:main"]
    assert _call(hub, "GET", "/v1/credentials")[1]["data"] == []
    assert admin.call("POST", "/v1/key/rotate", {}) == {"users": 1, "credentials": 1}
    assert _call(hub, "POST", "/v1/key/rotate", {})[0] == 404
    admin.call("DELETE", "/v1/credentials/provider%3Amain")
    with pytest.raises(CommandFailed, match="no such credential"):
        admin.call("DELETE", "/v1/credentials/provider%3Amain")


def _admin(hub: HubProcess) -> AdminClient:
    system = hub.directory / "_system"
    system.mkdir()
    (system / "admin.sock").symlink_to(hub.command_path)
    return AdminClient(hub.directory)
