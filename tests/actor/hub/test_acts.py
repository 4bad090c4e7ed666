"""/v1/acts on the operator's socket: closed kinds, and nobody else's."""

import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from core.cli.admin import _UnixConnection
from tests.fakes.hub_process import HubProcess


def _post(hub: HubProcess, body: Any) -> int:
    connection = _UnixConnection(hub.command_path.parent, hub.command_path.name, 20.0)
    try:
        connection.request("POST", "/v1/acts", json.dumps(body).encode())
        with connection.getresponse() as answer:
            answer.read()
            return answer.status
    finally:
        connection.close()


def test_a_commands_act_is_passed_on(hub: HubProcess) -> None:
    assert _post(hub, {"kind": "backup_made", "outcome": "asked", "on": "/b"}) == 201
    assert hub.reporter.told == [("backup_made", "asked", "/b", "")]
    hub.reporter.refusal = "the disk is full"
    assert _post(hub, {"kind": "backup_made", "outcome": "asked", "on": "/b"}) == 503


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "user_added", "outcome": "done"}, {"kind": "key_rotated", "outcome": "done"},
        {"kind": "backup_made", "outcome": "noted"}, {"kind": "backup_made"}, [], "x",
        {"kind": "backup_made", "outcome": "done", "who": "uid:0"},
        {"kind": "backup_made", "outcome": "done", "on": "x" * 257},
    ],
)  # fmt: skip
def test_nothing_else_can_be_said_there(hub: HubProcess, body: Any) -> None:
    assert _post(hub, body) == 400
    assert hub.reporter.told == []


def test_it_is_on_no_other_listener(hub: HubProcess) -> None:
    for url in (hub.url + "/v1/acts", hub.admin_url + "/v1/acts", hub.admin_url + "/admin/v1/acts"):
        request = urllib.request.Request(url, b"{}", {"Authorization": "Bearer token-alice"}, method="POST")
        with pytest.raises(urllib.error.HTTPError) as raised:
            urllib.request.urlopen(request, timeout=20)
        with raised.value:
            assert raised.value.code in (401, 404)
    assert hub.reporter.told == []
