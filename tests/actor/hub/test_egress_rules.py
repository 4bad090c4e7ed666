"""/v1/egress/rules over real sockets: whose they are, what is refused, what the operator's side may."""

import json
from typing import Any

import pytest

from core.cli.admin import AdminClient
from core.config import OpenRule
from tests.actor.hub.test_credentials import _call
from tests.fakes.hub_process import HubProcess

RULES = "/v1/egress/rules"
RULE = {"host": "api.example.com", "methods": ["GET", "POST"], "path": "/v1"}
WHOLE = {**RULE, "origin": "agent", "scheme": "https", "port": 0}


def test_a_user_adds_lists_and_removes_their_own(hub: HubProcess) -> None:
    hub.rules.allow = [OpenRule("*.example.org"), OpenRule("bobs.example", users=("bob",))]
    hub.rules.ceiling = [OpenRule("*", networks=("10.0.0.0/8",))]
    status, added = _call(hub, "POST", RULES, RULE)
    assert (status, added) == (201, {"object": "egress_rule", "id": "rule_00000000", **WHOLE})
    assert _call(hub, "POST", RULES, RULE)[0] == 200
    status, listed = _call(hub, "GET", RULES)
    assert status == 200
    assert listed["data"] == [{**added, "created_s": 1_000}]
    assert [rule["host"] for rule in listed["operator"]["allow"]] == ["*.example.org"]
    assert [rule["host"] for rule in listed["operator"]["ceiling"]] == ["*"]
    # who else may, and where private networks lie, is the operator's affair
    assert {"users", "networks"} & {
        *listed["operator"]["allow"][0],
        *listed["operator"]["ceiling"][0],
    } == set()
    assert _call(hub, "GET", RULES, token="token-bob")[1]["data"] == []
    one = f"{RULES}/rule_00000000"
    assert _call(hub, "DELETE", one, token="token-bob")[0] == 404
    assert _call(hub, "DELETE", one)[0] == 200
    assert _call(hub, "DELETE", one)[0] == 404


@pytest.mark.parametrize(
    "body",
    [
        {}, [], "x", {"host": ""}, {"host": "API.example.com"}, {"host": "a/b"}, {"host": "a.*.b"},
        {"host": "a:80"},
        {"host": "127.0.0.1\n"}, {**RULE, "methods": []}, {**RULE, "methods": ["TRACE"]}, {**RULE,
        "methods": "GET"},
        {**RULE, "path": "v1"}, {**RULE, "path": "/a b"}, {**RULE, "path": "/%2e"}, {**RULE, "port": 70_000},
        {**RULE, "port": True}, {**RULE, "scheme": "ftp"}, {**RULE, "origin": "core"}, {**RULE,
        "origin": "skill:../x"},
        {**RULE, "networks": ["10.0.0.0/8"]}, {**RULE, "users": ["bob"]}, {**RULE, "user": "bob"},
    ],
)  # fmt: skip
def test_a_rule_that_is_none_is_refused(hub: HubProcess, body: Any) -> None:
    status, told = _call(hub, "POST", RULES, body)
    assert status == 400
    assert told["error"]["code"] in {"invalid_request", "invalid", "invalid_value"}, json.dumps(told)
    assert hub.rules.kept.get("alice", []) == []


def test_without_a_token_nothing_is_told(hub: HubProcess) -> None:
    for method, path in (("GET", RULES), ("POST", RULES), ("DELETE", f"{RULES}/rule_00000000")):
        assert _call(hub, method, path, RULE if method == "POST" else None, token="nobody")[0] == 401


def test_an_operator_keeps_a_users_rules(hub: HubProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    client = AdminClient(hub.directory, 10.0)
    hub.directory.joinpath("_system").mkdir()
    hub.directory.joinpath("_system", "admin.sock").symlink_to(hub.command_path)
    added = client.call("POST", "/v1/users/alice/egress/rules", RULE)
    assert [kept.rule_id for kept in hub.rules.kept["alice"]] == [added["id"]]
    assert client.call("GET", "/v1/users/alice/egress/rules")["data"][0]["host"] == "api.example.com"
    client.call("DELETE", f"/v1/users/alice/egress/rules/{added['id']}")
    assert hub.rules.kept["alice"] == []
