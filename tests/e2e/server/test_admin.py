"""``/admin/v1`` of the real server, from its first token on."""

import json

import msgspec
import pytest

from core.hub.openapi import ADMIN
from tests.fakes.plain_client import PlainClient
from tests.fakes.real_server import Person, RealServer


@pytest.fixture(scope="module")
def first_token(server: RealServer) -> str:
    path = server.data_dir / "_keys" / "first-admin-token"
    assert path.stat().st_mode & 0o777 == 0o600
    return path.read_text().strip()


@pytest.fixture(scope="module")
def root(server: RealServer, first_token: str) -> PlainClient:
    return PlainClient(f"http://127.0.0.1:{server.admin_port}", {"Authorization": f"Bearer {first_token}"})


def test_the_first_token_is_named_in_the_log_and_not_in_it(server: RealServer, first_token: str) -> None:
    line = server.wait_logged("first_admin_token_written")
    assert line["path"] == str(server.data_dir / "_keys" / "first-admin-token")
    assert first_token not in server.log_path.read_text()


def test_it_opens_administration_and_a_users_does_not_and_the_other_way_round(
    server: RealServer, root: PlainClient, first_token: str, alice: Person
) -> None:
    assert root.ask("GET", "/admin/v1/users").status == 200
    user = PlainClient(f"http://127.0.0.1:{server.admin_port}", {"Authorization": f"Bearer {alice.token}"})
    assert user.ask("GET", "/admin/v1/users").error["code"] == "invalid_token"
    for token, status in ((first_token, 401), (alice.token, 200)):
        client = PlainClient(server.url, {"Authorization": f"Bearer {token}"})
        assert client.ask("GET", "/v1/models").status == status


def test_it_tells_of_the_whole_server_and_of_no_secret(root: PlainClient, alice: Person) -> None:
    alice.ask("remember that the password is xyzzy-plugh", session="kept")
    health = root.ask("GET", "/admin/v1/health").json
    assert (health["missing"], health["egress"], health["stopping"]) == ([], "up", False)
    assert 0 < health["disk_free_bytes"] <= health["disk_bytes"]
    jails = root.ask("GET", "/admin/v1/pool").json["jails"]
    assert "alice" in [jail["user"] for jail in jails]
    sizes = {row["user"]: row["bytes"] for row in root.ask("GET", "/admin/v1/sessions").json["users"]}
    assert sizes["alice"] > 0
    one = root.ask("GET", "/admin/v1/users/alice/sessions").json
    assert one["sessions"] >= 1
    assert one["messages"] >= 2
    assert root.ask("GET", "/admin/v1/users/nobody/sessions").status == 404
    providers = {row["name"]: row for row in root.ask("GET", "/admin/v1/providers").json["providers"]}
    assert providers["fake"]["breaker"] in ("closed", "open", "half_open")
    assert (providers["builtin"]["kind"], providers["builtin"]["default"]) == ("builtin", True)
    config = root.ask("GET", "/admin/v1/config").json
    assert config["hub"]["max_turns_per_user"] == 4
    assert "xyzzy-plugh" not in json.dumps([health, jails, sizes, one, providers, config])


def test_every_answer_is_as_the_document_describes_it_and_says_nothing_else(
    root: PlainClient, alice: Person
) -> None:
    looked_at = []
    for route in ADMIN.routes:
        shape = route.answers[min(route.answers)][0][1]
        if route.method == "get" and isinstance(shape, type) and issubclass(shape, msgspec.Struct):
            answer = root.ask("GET", route.path.format(name=alice.name)).json
            # what a struct does not know is lost on the way
            again = msgspec.json.encode(msgspec.convert(answer, shape))
            assert json.loads(again) == answer, route.path
            looked_at.append(shape.__name__)
    assert {"ServerHealth", "Pool", "Config", "Providers", "UsersUsage", "AuditLines"} <= set(looked_at)


def test_what_is_not_there_is_404_and_what_will_not_do_is_400(root: PlainClient) -> None:
    assert root.ask("POST", "/admin/v1/providers/nowhere/test").error["code"] == "not_found"
    assert root.ask("POST", "/admin/v1/providers/builtin/test").error["code"] == "invalid"
    assert root.ask("POST", "/admin/v1/providers/fake/test").status == 200


def test_a_token_made_by_the_command_line_works_until_it_is_revoked(
    server: RealServer, root: PlainClient
) -> None:
    made = server.admin.call("POST", "/v1/admin-tokens", {"label": "spare"})
    spare = PlainClient(f"http://127.0.0.1:{server.admin_port}", {"Authorization": f"Bearer {made['token']}"})
    assert spare.ask("POST", "/admin/v1/users", {"name": "sparrow"}).status == 201
    assert server.wait_logged("user_added", user="sparrow")["admin_token"] == made["token_id"]
    assert spare.ask("DELETE", "/admin/v1/users/sparrow").status == 200
    assert root.ask("DELETE", f"/admin/v1/tokens/{made['token_id']}").status == 200
    assert spare.ask("GET", "/admin/v1/users").status == 401
