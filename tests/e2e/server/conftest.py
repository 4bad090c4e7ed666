"""One server a module, with a fake model server behind it and two users."""

from collections.abc import Iterator

import pytest

from tests.fakes.model_server import FakeModelServer, running_model_server
from tests.fakes.real_server import Person, RealServer, Sections, real_server

STALL_S = 1.5
"""How long the servers of these tests wait for a model server that says nothing."""
FAKE_AGENT = 'provider = "fake"\nmodel = "echo"\n'


def sections(model: FakeModelServer) -> Sections:
    """A configuration with the fake model server as provider ``fake``."""
    return {
        "providers.fake": {"base_url": model.url, "first_byte_s": STALL_S, "idle_s": STALL_S},
    }


@pytest.fixture(scope="module")
def model() -> Iterator[FakeModelServer]:
    with running_model_server(keep_alive=False) as fake:
        yield fake


@pytest.fixture(scope="module")
def server(model: FakeModelServer) -> Iterator[RealServer]:
    with real_server(sections(model)) as running:
        yield running


@pytest.fixture(scope="module")
def alice(server: RealServer) -> Person:
    person = server.new_user("alice")
    person.add_agent("fake", FAKE_AGENT)
    return person


@pytest.fixture(scope="module")
def bob(server: RealServer) -> Person:
    person = server.new_user("bob")
    person.add_agent("fake", FAKE_AGENT)
    return person
