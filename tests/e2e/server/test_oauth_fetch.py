"""An account elsewhere, connected, and used by an agent that never sees a token of it."""

import json
import os
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.server.test_oauth import certosa, consent, kept, visit
from tests.fakes.auth_server import SECRET, FakeAuthServer, running_auth_server
from tests.fakes.certificates import make_certificate
from tests.fakes.memory import holds
from tests.fakes.model_server import Call, FakeModelServer, Script
from tests.fakes.real_server import (
    UNATTACKED,
    Done,
    Person,
    RealServer,
    below,
    free_ports,
    new_person,
    real_server,
    until,
    with_model,
)
from tests.fakes.search import files

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="tokens go to port 443, which is root's to listen on"
)

HOST = "127.0.0.43"
WHO = f"https://{HOST}/v1/api/whoami"
BEARER = {"Authorization": "Bearer {{credential:mail}}"}


@pytest.fixture(scope="module")
def server(shared_model: FakeModelServer, certificate: Path) -> Iterator[RealServer]:
    ceiling = {"host": HOST, "methods": ["GET"], "networks": ["127.0.0.0/8"]}
    sections = {**with_model(shared_model.url), "egress": {"ceiling": [ceiling]}}
    with (
        real_server(sections, before=UNATTACKED, start=False) as server,
        pytest.MonkeyPatch.context() as patch,
    ):
        trusted = server.directory / "trusted.pem"  # where egress's uid can read it
        trusted.write_bytes(certificate.read_bytes())
        patch.setenv("SSL_CERT_FILE", str(trusted))
        yield server


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The resource's; its key lies beside it."""
    directory = tmp_path_factory.mktemp("tls")
    make_certificate(HOST).write(directory)
    return directory / "tls.crt"


@pytest.fixture(scope="module")
def auth(server: RealServer, certificate: Path) -> Iterator[FakeAuthServer]:
    """Its tokens last for a second."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    with running_auth_server(resource=(HOST, 443, context), life_s=1) as running:
        (port,) = free_ports(1)
        public = f"http://127.0.0.1:{port}"
        running.redirect_uri = f"{public}/v1/oauth/acme/callback"
        server._sections["hub"]["public_url"] = public
        server._sections["oauth.acme"] = running.section(hosts=[HOST])
        server.begin(port)
        server.wait_ready()
        certosa(server, "oauth secret acme", SECRET)
        yield running


@pytest.fixture(scope="module")
def dora(server: RealServer, auth: FakeAuthServer) -> Person:
    """Who has connected her account, and lets her agent go there."""
    person = new_person(server, "dora")
    certosa(server, f"egress allow {HOST} --path /v1", "", person)
    line = "credential connect mail --with acme --path /v1/api --no-wait --json"
    back = consent(json.loads(certosa(server, line, person=person))["url"])
    assert "Connected" in visit(back, "POST")
    assert auth.families
    return person


def fetched(person: Person, model: FakeModelServer, url: str) -> Done:
    arguments = json.dumps({"url": url, "headers": BEARER})
    model.say(Script(calls=(Call("http_fetch", arguments, "c1"),)), Script(text="Done."))
    return person.ask("who am I there?", model="fake")


def wait_for_its_end(server: RealServer, person: Person) -> None:
    """Until the token that she has now is good no more."""
    ends_s = float(kept(server, person, "mail")["grant"]["expires_s"])

    def over() -> bool:
        return time.time() > ends_s

    until("the end of a token", over)


def test_an_agent_is_known_elsewhere_by_tokens_that_it_never_sees_until_they_are_taken_back(
    server: RealServer, auth: FakeAuthServer, dora: Person, model: FakeModelServer
) -> None:
    assert "is not for this path" in fetched(dora, model, f"https://{HOST}/v1/other").output
    assert auth.opened == []
    for number in (1, 2):
        assert "alice-elsewhere" in fetched(dora, model, WHO).output
        assert len(auth.opened) == number
        wait_for_its_end(server, dora)
    first, second = auth.opened
    assert first != second  # it was renewed
    (family,) = auth.families
    for token in {*family.access, *family.refresh}:
        needle = token.encode()
        assert [path for path in files(server.directory) if needle in path.read_bytes()] == []
        others = {server.process.pid, *(p.pid for p in below(server.process.pid))} - {server.pid("egress")}
        assert [pid for pid in others if holds(pid, needle)] == []
    assert holds(server.pid("egress"), second.encode())

    auth.revoke()
    refused = fetched(dora, model, WHO).output
    assert "alice-elsewhere" not in refused
    assert "certosa credential connect mail" in refused
    assert auth.opened == [first, second]
