"""[oauth.NAME]: what makes no sense is refused by its key and line."""

from typing import Any

import pytest

from core.config import Config, parse_config
from core.errors import ConfigError
from core.reload import merge_live

GOOD = {
    "client_id": '"c"', "token_url": '"https://a.example/token"', "hosts": '["api.a.example"]',
    "authorize_url": '"https://a.example/authorize"',
}  # fmt: skip


def _parsed(name: str = "acme", hub: str = "", **changes: str | None) -> Config:
    lines = [f"{key} = {value}" for key, value in {**GOOD, **changes}.items() if value is not None]
    return parse_config("\n".join([*(["[hub]", hub] if hub else []), f"[oauth.{name}]", *lines, ""]))


def test_a_good_section_is_taken() -> None:
    section = _parsed(scopes='["repo", "user:email"]', users='["alice"]').oauth["acme"]
    assert (section.client_auth, section.scopes) == ("basic", ("repo", "user:email"))
    assert (section.admits("alice"), section.admits("bob")) == (True, False)
    assert _parsed().oauth["acme"].admits("bob")
    assert _parsed(token_url='"http://127.0.0.1:1/t"', authorize_url=None, device_url='"http://[::1]/d"')
    assert _parsed(hub='public_url = "https://chat.example/certosa"').hub.public_url
    assert _parsed(hub='public_url = "http://localhost:8700"').hub.public_url


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"token_url": '"http://a.example/token"'}, "token_url"),
        ({"token_url": '"https://u:p@a.example/token"'}, "token_url"),
        ({"token_url": '""'}, "token_url"),
        ({"token_url": None}, "oauth.acme"),
        ({"client_id": None}, "oauth.acme"),
        ({"client_id": r'"a\nb"'}, "client_id"),
        ({"hosts": "[]"}, "hosts"),
        ({"hosts": '["API.a.example"]'}, "hosts"),
        ({"hosts": '["a.example:443"]'}, "hosts"),
        ({"authorize_url": None}, "authorize_url"),
        ({"device_url": '"http://10.0.0.1/device"'}, "device_url"),
        ({"scopes": '["two words"]'}, "scopes"),
        ({"authorize_parameters": '["state=x"]'}, "authorize_parameters"),
        ({"authorize_parameters": '["redirect_uri=x"]'}, "authorize_parameters"),
        ({"authorize_parameters": '["prompt"]'}, "authorize_parameters"),
        ({"client_auth": '"magic"'}, "client_auth"),
        ({"users": '["Alice"]'}, "users"),
        ({"colour": "1"}, "colour"),
        ({"name": '"../x"'}, "oauth"),
        ({"hub": 'public_url = "http://chat.example"'}, "hub.public_url"),
        ({"hub": 'public_url = "https://chat.example/?a=b"'}, "hub.public_url"),
    ],
)
def test_a_section_that_makes_no_sense_is_refused_by_its_key(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=key.replace(".", r"\.")):
        _parsed(**changes)


def test_providers_and_the_public_address_count_at_once() -> None:
    after = _parsed(hub='public_url = "https://chat.example"')
    merged, changed, later = merge_live(Config(), after)
    assert merged.oauth == after.oauth
    assert merged.hub.public_url == "https://chat.example"
    assert "hub.public_url" in changed
    assert later == []
