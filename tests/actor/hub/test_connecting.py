"""Connecting accounts over real sockets: what a user asks for, and the page that a browser comes back to."""

import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from tests.fakes.hub_process import HubProcess

CODE = "code-canary-8d7c6b5a"
CALLBACK = f"/v1/oauth/acme/callback?state=the-state&code={CODE}"


def _call(hub: HubProcess, method: str, path: str, body: Any = None, token: str = "token-alice") -> Any:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(hub.url + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode(), answer.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(), error.headers


def test_a_user_begins_asks_and_is_told(hub: HubProcess) -> None:
    path = "/v1/credentials/mail/connect"
    assert _call(hub, "GET", path)[0] == 404
    status, text, _ = _call(hub, "POST", path, {"with": "acme", "path": "/v1", "scopes": ["read"]})
    begun = json.loads(text)
    assert (status, begun["flow"], begun["expires_in_s"]) == (201, "browser", 600)
    ((owner, name, asked),) = hub.connector.begun
    assert (owner, name, asked.provider, asked.path, asked.scopes) == (
        "alice", "mail", "acme", "/v1", ("read",),
    )  # fmt: skip
    assert json.loads(_call(hub, "GET", path)[1])["status"] == "waiting"
    assert _call(hub, "GET", path, token="token-bob")[0] == 404
    (one,) = json.loads(_call(hub, "GET", "/v1/oauth")[1])["data"]
    assert one["hosts"] == ["api.acme.example"]
    assert _call(hub, "GET", "/v1/oauth", token="wrong")[0] == 401


@pytest.mark.parametrize(
    "body",
    [
        {}, {"with": ""}, {"with": "acme", "flow": "telepathy"}, {"with": "acme", "colour": 1}, [], "with",
        {"with": "acme", "scopes": [""]}, {"with": "nobody"}, {"provider": "acme"},
    ],
)  # fmt: skip
def test_a_body_that_is_none_begins_nothing(hub: HubProcess, body: Any) -> None:
    assert _call(hub, "POST", "/v1/credentials/mail/connect", body)[0] == 400
    assert hub.connector.begun == []


def test_a_browser_is_asked_and_its_yes_finishes(hub: HubProcess) -> None:
    status, page, headers = _call(hub, "GET", CALLBACK, token="")
    assert status == 200
    assert "<b>alice</b>" in page
    assert "<b>mail</b>" in page
    assert CODE not in page
    assert "the-state" not in page
    assert headers["Content-Type"].startswith("text/html")
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert (headers["Referrer-Policy"], headers["Cache-Control"]) == ("no-referrer", "no-store")
    assert hub.connector.finished == []
    status, page, _ = _call(hub, "POST", CALLBACK, token="")
    assert (status, "Connected" in page) == (200, True)
    assert CODE not in page
    assert hub.connector.finished == [("acme", "the-state", CODE, "")]


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_state_that_is_none_gets_a_page_that_says_so(hub: HubProcess, method: str) -> None:
    for provider, state in (("acme", "another"), ("other", "the-state"), ("acme", "a" * 256)):
        query = f"?state={state}&code={CODE}"
        status, page, _ = _call(hub, method, f"/v1/oauth/{provider}/callback{query}", token="")
        assert status == 400
        assert "this link is &lt;none&gt;" in page
        assert CODE not in page
    assert hub.connector.finished == []


def test_a_refusal_at_the_server_is_the_end_of_it(hub: HubProcess) -> None:
    query = "?state=the-state&error=access_denied&error_description=%3Cscript%3Ealert(1)%3C/script%3E"
    status, page, _ = _call(hub, "GET", f"/v1/oauth/acme/callback{query}", token="")
    assert status == 400
    assert "refused by its owner" in page
    assert "script" not in page
    assert hub.connector.finished == [("acme", "the-state", "", "access_denied")]


@pytest.mark.parametrize(
    "query",
    ["", "?code=c", "?state=a&state=b&code=c", f"?state={'a' * 257}&code=c", f"?state=a&code={'c' * 8_193}"],
)
def test_what_no_authorization_server_sends_is_refused(hub: HubProcess, query: str) -> None:
    assert _call(hub, "GET", f"/v1/oauth/acme/callback{query}", token="")[0] == 400
    assert hub.connector.finished == []


def test_the_callback_is_no_page_of_the_administrators(hub: HubProcess) -> None:
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(hub.admin_url + CALLBACK, timeout=20)
    with raised.value:
        assert raised.value.code == 401
