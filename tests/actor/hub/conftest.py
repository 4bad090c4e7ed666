"""The hub under test, and clients of it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.fakes.hub_process import HubProcess
from tests.fakes.plain_client import PlainClient


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubProcess]:
    hub = HubProcess(tmp_path)
    yield hub
    hub.close()


@pytest.fixture
def client(hub: HubProcess) -> Iterator[Callable[..., openai.OpenAI]]:
    """Makes official clients: ``client("alice", max_retries=0)``."""
    made: list[openai.OpenAI] = []

    def make(user: str = "alice", **options: Any) -> openai.OpenAI:
        options.setdefault("max_retries", 0)
        found = openai.OpenAI(api_key=f"token-{user}", base_url=f"{hub.url}/v1", timeout=20.0, **options)
        made.append(found)
        return found

    yield make
    for one in made:
        one.close()


@pytest.fixture
def plain(hub: HubProcess) -> PlainClient:
    """A client that is alice and sends what it is told."""
    return PlainClient(hub.url, {"Authorization": "Bearer token-alice"})
