"""Wrong tokens, proxies and web pages, as clients of the hub see them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.config import AccessSection
from tests.fakes.hub_process import HubProcess
from tests.fakes.plain_client import Answer, PlainClient

PAGE = "https://chat.example.org"
WAITS = {"free_failures": 3, "first_wait_s": 40.0}


@pytest.fixture
def hub_with(tmp_path: Path) -> Iterator[Callable[..., HubProcess]]:
    made: list[HubProcess] = []

    def make(**access: Any) -> HubProcess:
        made.append(HubProcess(tmp_path / str(len(made)), access=AccessSection(**access)))
        return made[-1]

    yield make
    for hub in made:
        hub.close()


def _ask(url: str, token: str, path: str = "/v1/models", forwarded: str = "") -> Answer:
    headers = {"Authorization": f"Bearer {token}"} | ({"X-Forwarded-For": forwarded} if forwarded else {})
    return PlainClient(url, headers).ask("GET", path)


def test_who_sends_wrong_tokens_waits_on_both_listeners(hub_with: Callable[..., HubProcess]) -> None:
    hub = hub_with(**WAITS)
    assert _ask(hub.url, "token-alice").status == 200
    assert [_ask(hub.url, "wrong").status for _ in range(4)] == [401] * 4
    asked = hub.book.asked
    for url, path in ((hub.url, "/v1/models"), (hub.admin_url, "/admin/v1/users")):
        refused = _ask(url, "wrong", path)
        assert (refused.status, refused.error["code"]) == (429, "too_many_failures")
        assert 30 <= int(refused.headers["retry-after"]) <= 40
    assert _ask(hub.admin_url, "admin-root", "/admin/v1/users").status == 429
    failed = [hub.sample("certosa_logins_failed_total", reason=why) for why in ("wrong", "waiting")]
    assert failed == [4, 3]
    assert hub.book.asked == asked, "a token that is not looked at costs the vault nothing"
    # alice was here before and goes on; no token at all is no guess
    assert _ask(hub.url, "token-alice").status == 200
    assert PlainClient(hub.url).ask("GET", "/v1/models").status == 401


def test_what_a_client_says_of_its_address_is_not_believed(hub_with: Callable[..., HubProcess]) -> None:
    hub = hub_with(**WAITS)
    answers = [_ask(hub.url, "wrong", forwarded=f"198.51.100.{n}").status for n in range(5)]
    assert answers == [401, 401, 401, 401, 429]
    assert _ask(hub.url, "token-alice", forwarded="203.0.113.9").status == 429


def test_behind_a_trusted_proxy_each_client_counts_by_itself(hub_with: Callable[..., HubProcess]) -> None:
    hub = hub_with(**WAITS, trusted_proxies=("127.0.0.1", "10.0.0.0/8"))
    for _ in range(4):
        assert _ask(hub.url, "wrong", forwarded="198.51.100.7").status == 401
    assert _ask(hub.url, "wrong", forwarded="198.51.100.7").status == 429
    assert _ask(hub.url, "token-bob", forwarded="203.0.113.5").status == 200
    # what stands left of the first address that is no proxy of ours, the client wrote
    assert _ask(hub.url, "wrong", forwarded="203.0.113.5, 198.51.100.7, 10.1.2.3").status == 429
    assert _ask(hub.url, "wrong", forwarded="198.51.100.7, 203.0.113.77, 10.1.2.3").status == 401
    # no address: then it is the proxy's own
    assert _ask(hub.url, "token-bob", forwarded="unknown").status == 200


def _preflight(url: str, origin: str, headers: str = "authorization, content-type") -> Answer:
    return PlainClient(url).ask(
        "OPTIONS",
        "/v1/chat/completions",
        headers={
            "Origin": origin,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": headers,
        },
    )


def test_a_page_of_a_configured_origin_may_ask_and_another_may_not(
    hub_with: Callable[..., HubProcess],
) -> None:
    hub = hub_with(origins=(PAGE,))
    allowed = _preflight(hub.url, PAGE)
    assert allowed.status == 204
    assert allowed.headers["access-control-allow-origin"] == PAGE
    assert allowed.headers["access-control-allow-headers"] == "authorization, content-type"
    assert "POST" in allowed.headers["access-control-allow-methods"]
    assert "access-control-allow-credentials" not in allowed.headers
    for other in ("https://evil.example", PAGE + ".evil.example", "null", PAGE.upper()):
        assert not [name for name in _preflight(hub.url, other).headers if name.startswith("access-control")]
    assert "access-control-allow-headers" not in _preflight(hub.url, PAGE, "a: b\tc").headers


def test_answers_and_errors_carry_the_origin_and_vary_by_it(hub_with: Callable[..., HubProcess]) -> None:
    hub = hub_with(origins=(PAGE,))
    for token, status in (("token-alice", 200), ("wrong", 401)):
        client = PlainClient(hub.url, {"Authorization": f"Bearer {token}", "Origin": PAGE})
        answer = client.ask("GET", "/v1/models")
        assert answer.status == status
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert "X-Request-Id" in answer.headers["access-control-expose-headers"]
        assert answer.headers["vary"] == "Origin"
    other = PlainClient(hub.url, {"Authorization": "Bearer token-alice", "Origin": "https://evil.example"})
    assert "access-control-allow-origin" not in other.ask("GET", "/v1/models").headers
    # the operators' listener answers to no page at all
    assert "access-control-allow-origin" not in _preflight(hub.admin_url, PAGE).headers


def test_any_origin_comes_without_credentials_and_a_named_one_may_have_them(
    hub_with: Callable[..., HubProcess],
) -> None:
    anybody = _preflight(hub_with(origins=("*",)).url, "https://some.example")
    assert anybody.headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-credentials" not in anybody.headers
    named = _preflight(hub_with(origins=(PAGE,), credentials=True).url, PAGE)
    assert named.headers["access-control-allow-credentials"] == "true"


def test_without_origins_nothing_is_said_and_options_is_no_method(hub: HubProcess) -> None:
    assert "access-control-allow-origin" not in _preflight(hub.url, PAGE).headers
    assert PlainClient(hub.url).ask("OPTIONS", "/v1/chat/completions").status == 405


def test_every_answer_has_the_security_headers(hub: HubProcess) -> None:
    for path, status in (("/healthz", 200), ("/nowhere", 404)):
        answer = PlainClient(hub.url).ask("GET", path)
        assert answer.status == status
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "strict-transport-security" not in answer.headers, "HTTP must not promise HTTPS"
