"""What is published of the API is what the application has."""

import json

from core.hub.openapi import encoded_document
from core.hub.openapi.table import ROUTES
from tests.fakes.hub_process import HubProcess
from tests.fakes.plain_client import PlainClient


def test_every_route_of_the_application_is_described_and_none_else(hub: HubProcess) -> None:
    app = hub.server._public_app()
    there = {
        (route.method.lower(), route.resource.canonical)
        for route in app.router.routes()
        if route.resource is not None
    }
    # health is asked with HEAD too, by what balances load, and says no more than to GET
    there -= {("head", path) for path in ("/healthz", "/readyz", "/v1/models", "/v1/models/{name}")}
    assert there == {(route.method, route.path) for route in ROUTES}, "add it to core/hub/openapi/table.py"


def test_the_document_is_served_to_everybody(hub: HubProcess) -> None:
    answer = PlainClient(hub.url, {}).ask("GET", "/v1/openapi.json")
    assert answer.status == 200
    assert answer.json == json.loads(encoded_document())
