"""One server for all modules that do it no lasting harm, with a fake model server and two users."""

from collections.abc import Iterator

import pytest

from tests.fakes.model_server import FakeModelServer, running_model_server
from tests.fakes.outside_server import OutsideServer, outside_server
from tests.fakes.real_server import UNATTACKED, Person, RealServer, new_person, real_server, with_model


@pytest.fixture(scope="session")
def shared_model() -> Iterator[FakeModelServer]:
    with running_model_server(keep_alive=False) as fake:
        yield fake


@pytest.fixture(scope="session")
def shared_outside() -> Iterator[OutsideServer]:
    """A server that users' own rules may let their agents speak to."""
    with outside_server() as running:
        yield running


@pytest.fixture(scope="session")
def shared_server(shared_model: FakeModelServer, shared_outside: OutsideServer) -> Iterator[RealServer]:
    ceiling = {
        "host": "127.0.0.1", "scheme": "http", "port": shared_outside.port, "methods": ["GET", "POST", "PUT"],
        "networks": ["127.0.0.0/8"],
    }  # fmt: skip
    sections = {**with_model(shared_model.url), "egress": {"ceiling": [ceiling]}}
    with real_server(sections, before=UNATTACKED) as running:
        yield running


@pytest.fixture(scope="session")
def shared_people(shared_server: RealServer) -> dict[str, Person]:
    return {name: new_person(shared_server, name) for name in ("alice", "bob")}


@pytest.fixture
def model(shared_model: FakeModelServer) -> Iterator[FakeModelServer]:
    yield shared_model
    shared_model.forget()


@pytest.fixture(scope="module")
def server(shared_server: RealServer) -> RealServer:
    """What ``alice`` and ``bob`` are users of; modules that hurt it have their own."""
    return shared_server


@pytest.fixture(scope="module")
def alice(shared_people: dict[str, Person]) -> Person:
    return shared_people["alice"]


@pytest.fixture(scope="module")
def bob(shared_people: dict[str, Person]) -> Person:
    return shared_people["bob"]
