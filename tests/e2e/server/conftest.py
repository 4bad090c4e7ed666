"""One server a module, with a fake model server behind it and two users."""

from collections.abc import Iterator

import pytest

from tests.fakes.model_server import FakeModelServer, running_model_server
from tests.fakes.real_server import FAKE_AGENT, Person, RealServer, real_server, with_model


@pytest.fixture(scope="module")
def model() -> Iterator[FakeModelServer]:
    with running_model_server(keep_alive=False) as fake:
        yield fake


@pytest.fixture(scope="module")
def server(model: FakeModelServer) -> Iterator[RealServer]:
    with real_server(with_model(model.url)) as running:
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
