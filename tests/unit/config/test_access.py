"""What the configuration says about who may come in."""

import pytest

from core.config import Config, is_loopback, parse_config
from core.errors import ConfigError


def _parse(text: str) -> Config:
    return parse_config(text, "file")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "admin.example.org"])
def test_administrators_are_not_served_in_the_clear_beyond_this_machine(host: str) -> None:
    with pytest.raises(ConfigError, match=r"^file:2: admin\.host: .* is not loopback"):
        _parse(f'[admin]\nhost = "{host}"')
    assert _parse(f'[admin]\nhost = "{host}"\nallow_plain = true').admin.allow_plain
    assert _parse(f'[admin]\nhost = "{host}"\ntls_certificate = "/c"\ntls_key = "/k"').admin.host == host
    # clients may be behind a proxy in the same network
    assert _parse(f'[hub]\nhost = "{host}"').hub.host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_loopback_needs_neither(host: str) -> None:
    assert is_loopback(host)
    assert _parse(f'[admin]\nhost = "{host}"').admin.host == host


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[hub]\ntls_certificate = "/c"', "hub.tls_key: certificate and key go together"),
        ('[admin]\ntls_key = "/k"', "admin.tls_certificate: certificate and key go together"),
        ('[hub]\ntls_certificate = "c"\ntls_key = "/k"', "file:2: hub.tls_certificate: not an absolute path"),
        ('[access]\ntrusted_proxies = ["proxy.example"]', "file:2: access.trusted_proxies"),
        ('[access]\ntrusted_proxies = ["10.0.0.1/8"]', "has host bits set"),
        ('[access]\norigins = ["chat.example.org"]', "is not SCHEME://HOST"),
        ('[access]\norigins = ["https://a.example/path"]', "is not SCHEME://HOST"),
        ('[access]\norigins = ["https://*.example"]', "is not SCHEME://HOST"),
        ('[access]\norigins = ["*"]\ncredentials = true', "file:3: access.credentials: not with the origin"),
        ("[access]\nfree_failures = 0", "access.free_failures"),
    ],
)
def test_what_would_not_do_is_refused_by_name(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        _parse(text)
    assert says in str(refused.value)


def test_what_is_right_is_taken() -> None:
    access = _parse(
        '[access]\norigins = ["https://a.example", "http://localhost:3000"]\ncredentials = true\n'
        'trusted_proxies = ["127.0.0.1", "10.0.0.0/8", "2001:db8::/32"]'
    ).access
    assert access.origins == ("https://a.example", "http://localhost:3000")
    assert len(access.trusted_proxies) == 3
