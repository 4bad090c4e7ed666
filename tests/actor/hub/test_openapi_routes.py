"""What is published of the APIs is what the applications have."""

import json
import re

import pytest
from aiohttp import web

from core.hub.openapi import ADMIN, PUBLIC, encoded_document
from core.hub.openapi.route import Api
from tests.fakes.hub_process import HubProcess
from tests.fakes.plain_client import PlainClient

# asked with HEAD too, by what balances load and by clients, and no more is said than to GET
_ALSO_HEAD = {"/healthz", "/readyz", "/metrics", "/v1/models", "/v1/models/{name}"}


def routes_of(app: web.Application) -> set[tuple[str, str]]:
    """Methods and paths, without the HEADs that need no words."""
    there = {
        (route.method.lower(), route.resource.canonical)
        for route in app.router.routes()
        if route.resource is not None
    }
    return there - {("head", path) for path in _ALSO_HEAD}


def described(api: Api) -> set[tuple[str, str]]:
    return {(route.method, route.path) for route in api.routes}


def test_every_route_of_the_public_application_is_described_and_none_else(hub: HubProcess) -> None:
    there = routes_of(hub.server._public_app())
    assert there == described(PUBLIC), "add it to core/hub/openapi/table.py"


def test_every_route_of_the_operators_application_is_described_and_none_else(hub: HubProcess) -> None:
    there = routes_of(hub.server._admin_app())
    assert there == described(ADMIN), "add it to core/hub/openapi/admin_table.py"


def test_the_public_document_is_served_to_everybody(hub: HubProcess) -> None:
    answer = PlainClient(hub.url, {}).ask("GET", PUBLIC.path)
    assert answer.status == 200
    assert answer.json == json.loads(encoded_document(PUBLIC))


def test_the_operators_document_is_served_to_administrators_alone(hub: HubProcess) -> None:
    answer = PlainClient(hub.admin_url, {"Authorization": "Bearer admin-root"}).ask("GET", ADMIN.path)
    assert answer.status == 200
    assert answer.json == json.loads(encoded_document(ADMIN))
    assert PlainClient(hub.admin_url).ask("GET", ADMIN.path).error["code"] == "missing_token"
    alice = PlainClient(hub.admin_url, {"Authorization": "Bearer token-alice"})
    assert alice.ask("GET", ADMIN.path).error["code"] == "invalid_token"
    assert PlainClient(hub.url, {"Authorization": "Bearer admin-root"}).ask("GET", ADMIN.path).status == 404


@pytest.mark.parametrize("api", [PUBLIC, ADMIN], ids=lambda api: api.prefix)
def test_what_is_said_of_tokens_is_so(hub: HubProcess, api: Api) -> None:
    client = PlainClient(hub.url if api is PUBLIC else hub.admin_url)
    for route in api.routes:
        if route.guard == "as configured":
            continue  # tests of its own say when
        answer = client.ask(route.method.upper(), re.sub(r"\{.*?\}", "some", route.path))
        # a WebSocket's address wants to be asked for one first
        assert (answer.status in (401, 426)) == (route.guard == "token"), route
