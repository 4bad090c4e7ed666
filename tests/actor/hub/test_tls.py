"""TLS of a listener: what it takes, what it refuses, and a certificate replaced while it serves."""

import http.client
import socket
import ssl
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509

from core.errors import ConfigError
from core.hub.tls import Tls, TlsFiles
from tests.fakes.certificates import Made, make_certificate
from tests.fakes.hub_process import HubProcess

LIMIT_S = 20.0


@pytest.fixture(scope="module")
def made() -> Made:
    return make_certificate()


@pytest.fixture
def secure(tmp_path: Path, made: Made) -> Iterator[tuple[HubProcess, Tls]]:
    tls = Tls("hub", TlsFiles(made.certificate, made.key))
    hub = HubProcess(tmp_path, tls=tls, max_connections=16)
    yield hub, tls
    hub.close()


def _client(made: Made) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=made.certificate.decode())
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)  # a test's certificate says little
    return context


def _get(port: int, context: ssl.SSLContext) -> http.client.HTTPResponse:
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=LIMIT_S, context=context)
    try:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        answer.read()
        return answer
    finally:
        connection.close()


def test_https_is_served_and_promised_for_later(secure: tuple[HubProcess, Tls], made: Made) -> None:
    answer = _get(secure[0].address[1], _client(made))
    assert answer.status == 200
    assert answer.headers["Strict-Transport-Security"] == "max-age=31536000"


def test_plain_http_and_old_tls_are_refused(secure: tuple[HubProcess, Tls], made: Made) -> None:
    port = secure[0].address[1]
    with socket.create_connection(("127.0.0.1", port), LIMIT_S) as sock:
        sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200" not in sock.recv(100)
    old = _client(made)
    old.set_ciphers("DEFAULT:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        _get(port, old)
    new = _client(made)
    new.maximum_version = ssl.TLSVersion.TLSv1_2
    assert _get(port, new).status == 200


def test_a_new_certificate_counts_from_the_next_connection_on(
    secure: tuple[HubProcess, Tls], made: Made
) -> None:
    hub, tls = secure
    port = hub.address[1]
    raw = socket.create_connection(("127.0.0.1", port), LIMIT_S)
    with _client(made).wrap_socket(raw, server_hostname="127.0.0.1") as before:
        other = make_certificate()
        hub.loop.call_soon_threadsafe(tls.replace, TlsFiles(other.certificate, other.key))
        assert _get(port, _client(other)).status == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            _get(port, _client(made))
        before.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200" in before.recv(100), "who is connected stays so"
        shown = before.getpeercert(binary_form=True)
    assert shown is not None
    assert x509.load_der_x509_certificate(shown).serial_number == made.serial


def test_connections_that_never_finish_a_handshake_make_room_for_others(
    secure: tuple[HubProcess, Tls], made: Made
) -> None:
    port = secure[0].address[1]
    silent = [socket.create_connection(("127.0.0.1", port), LIMIT_S) for _ in range(16)]
    try:
        for _ in range(3):
            assert _get(port, _client(made)).status == 200
        assert silent[0].recv(1) == b"", "the oldest"
    finally:
        for sock in silent:
            sock.close()


@pytest.mark.parametrize(
    "what", ["another's key", "no key", "encrypted", "no certificate", "swapped", "empty"]
)
def test_what_does_not_belong_together_is_refused_and_the_old_stays(made: Made, what: str) -> None:
    other = make_certificate()
    certificate, key = {
        "another's key": (made.certificate, other.key),
        "no key": (made.certificate, b"nothing"),
        "encrypted": (made.certificate, made.encrypted),
        "no certificate": (b"nothing", made.key),
        "swapped": (made.key, made.certificate),
        "empty": (b"", b""),
    }[what]
    tls = Tls("hub", TlsFiles(made.certificate, made.key))
    before = tls.context
    with pytest.raises(ConfigError, match=r"hub\.tls_certificate and tls_key") as refused:
        tls.replace(TlsFiles(certificate, key))
    assert "PRIVATE" not in str(refused.value)
    assert tls.context is before
    tls.replace(TlsFiles(other.certificate, other.key))
    assert tls.context is not before
