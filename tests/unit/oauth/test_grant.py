"""Messages of OAuth 2, and when a grant is due: pure."""

import json
import urllib.parse
from typing import Any

import msgspec
import pytest

from core.oauth.grant import (
    Grant,
    OAuthError,
    authorize_url,
    basic,
    challenge,
    error_code,
    fresh_secret,
    parse_device,
    parse_tokens,
)
from core.oauth.section import OAuthSection

SECTION = OAuthSection(
    client_id="a client",
    token_url="https://a.example/token",
    authorize_url="https://a.example/authorize?tenant=t",
    hosts=("api.a.example",),
    authorize_parameters=("access_type=offline",),
)


def _tokens(before: str = "", **said: Any) -> Grant:
    answer = {"access_token": "abcdefgh", "token_type": "Bearer", **said}
    return parse_tokens("acme", json.dumps(answer).encode(), 1_000.0, before)


def test_the_challenge_is_that_of_rfc_7636() -> None:
    # appendix B
    assert challenge("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk") == (
        "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
    )
    assert len({fresh_secret() for _ in range(100)}) == 100
    assert len(fresh_secret()) == 43


def test_the_address_of_a_browser_keeps_what_the_server_wants() -> None:
    url = urllib.parse.urlsplit(authorize_url(SECTION, "https://c.example/cb", ("a", "b:c"), "s", "v"))
    assert dict(urllib.parse.parse_qsl(url.query)) == {
        "tenant": "t", "access_type": "offline", "response_type": "code", "client_id": "a client",
        "redirect_uri": "https://c.example/cb", "scope": "a b:c", "state": "s",
        "code_challenge": challenge("v"), "code_challenge_method": "S256",
    }  # fmt: skip


def test_id_and_secret_are_form_encoded_before_they_are_basic() -> None:
    assert basic("a:b", "c d+e") == "Basic YSUzQWI6YyUyMGQlMkJl"


def test_an_answer_becomes_a_grant() -> None:
    assert _tokens(refresh_token="r1", expires_in=3_600) == Grant("acme", "abcdefgh", "r1", 1_000, 4_600)
    assert _tokens("r0", expires_in="60").refresh == "r0"
    assert _tokens(expires_in=60).expires_s == 1_060
    for odd in (None, 0, -5, "soon", "nan", "inf"):
        assert _tokens(expires_in=odd).expires_s == 0
    assert _tokens(expires_in=1e300).expires_s < 1_000 + 11 * 366 * 86_400
    assert "abcdefgh" not in repr(_tokens())


@pytest.mark.parametrize(
    "said",
    [
        {"access_token": ""}, {"access_token": "short"}, {"access_token": "a b c d e f"},
        {"access_token": "abcdefgh\r\nX: y"}, {"access_token": "\u00e4bcdefgh"}, {"access_token": 7},
        {"access_token": "x" * 16_385}, {"refresh_token": "a b"}, {"token_type": "mac"},
    ],
)  # fmt: skip
def test_what_is_no_token_is_refused(said: dict[str, Any]) -> None:
    with pytest.raises(OAuthError) as raised:
        _tokens(**said)
    assert raised.value.code == "bad_answer"


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"\xff", b"[" * 100_000, b"access_token=abcdefgh"])
def test_what_is_no_answer_is_refused(data: bytes) -> None:
    with pytest.raises(OAuthError):
        parse_tokens("acme", data, 0.0, "")
    with pytest.raises(OAuthError):
        parse_device("acme", data)
    assert error_code(data) == ""


def test_an_errors_code_is_found_and_bounded() -> None:
    assert error_code(b'{"error": "invalid_grant", "more": 1}') == "invalid_grant"
    for odd in ('{"error": {"message": "x"}}', '{"error": "%s"}' % ("x" * 65), '{"error": "a\\nb"}'):
        assert error_code(odd.encode()) == ""


def test_a_devices_code_is_bounded() -> None:
    good = {"device_code": "d", "user_code": "AB-CD", "verification_uri": "https://a.example/activate"}
    code = parse_device("acme", json.dumps({**good, "interval": 0, "expires_in": 1e9}).encode())
    assert (code.interval_s, code.expires_in_s, code.url) == (1.0, 1_800, "https://a.example/activate")
    google = {"device_code": "d", "user_code": "U", "verification_url": "https://g.example/device"}
    assert parse_device("acme", json.dumps(google).encode()).interval_s == 5.0
    for change in (
        {"user_code": ""}, {"user_code": "A\x1b[2J"}, {"user_code": "x" * 65}, {"device_code": ""},
        {"verification_uri": "javascript:alert(1)"}, {"verification_uri": "https://a.example/\u202e"},
    ):  # fmt: skip
        with pytest.raises(OAuthError):
            parse_device("acme", json.dumps({**good, **change}).encode())


def test_a_grant_is_due_ahead_of_its_end() -> None:
    hour = Grant("acme", "abcdefgh", "r", 1_000, 4_600)
    assert [hour.is_due(at) for at in (1_000, 4_479, 4_480, 4_600)] == [False, False, True, True]
    assert [hour.is_over(at) for at in (4_599, 4_600)] == [False, True]
    minute = Grant("acme", "abcdefgh", "r", 1_000, 1_060)
    assert [minute.is_due(at) for at in (1_000, 1_044, 1_045)] == [False, False, True]
    unrenewable = msgspec.structs.replace(hour, refresh="")
    assert [unrenewable.is_due(at) for at in (4_599, 4_600)] == [False, True]
    assert not msgspec.structs.replace(hour, expires_s=0).is_due(1e12)
