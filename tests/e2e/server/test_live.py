"""Turns watched from the real server by a page whose connection keeps breaking."""

import asyncio
import os
import random
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pytest

from tests.fakes.browser import Browser, Closed, CutError, Json, RefusedError
from tests.fakes.model_server import FakeModelServer, Script
from tests.fakes.real_server import UNATTACKED, Person, RealServer, new_person, real_server, with_model

CUTS = 50
WORDS = [f"word{number} " for number in range(400)]
Reader = Callable[[Browser, str, list[Json], int | None], Coroutine[Any, Any, None]]


def page(person: Person) -> Browser:
    return Browser(person.server.url, person.token)


async def by_socket(browser: Browser, session: str, seen: list[Json], budget: int | None) -> None:
    """Read until the turn's end or the cut."""
    async with browser.socket(budget) as socket:
        socket.send(type="watch", session=session, after=seen[-1]["id"] if seen else 0)
        while not seen or seen[-1]["type"] not in ("done", "error"):
            message = await socket.read()
            if isinstance(message, Closed):
                raise CutError
            if "id" in message:
                seen.append(message)


async def by_stream(browser: Browser, session: str, seen: list[Json], budget: int | None) -> None:
    """Read until the turn's end or the cut."""
    async with browser.stream(session, "?after=0", seen[-1]["id"] if seen else None, budget) as stream:
        while not seen or seen[-1]["type"] not in ("done", "error"):
            event = await stream.read()
            if event is None:
                raise CutError
            if event[0] is not None:
                seen.append(event[1])


@pytest.mark.parametrize("read", [by_socket, by_stream])
def test_a_page_cut_fifty_times_in_one_turn_reads_every_event_once_in_order(
    alice: Person, model: FakeModelServer, read: Reader
) -> None:
    session = f"s-{uuid4().hex[:8]}"
    model.say(Script(text="".join(WORDS), rate_per_s=80))
    chance = random.Random(7)

    async def main() -> list[Json]:
        seen: list[Json] = []
        body = {"text": "go", "agent": "fake"}
        assert (await page(alice).call("POST", f"/v1/sessions/{session}/turns", body))[0] == 202
        cuts = 0
        while cuts < CUTS:
            with suppress(CutError):
                await read(page(alice), session, seen, chance.randrange(700, 1_600))
                break
            cuts += 1
        assert cuts == CUTS, "the turn ended before the last cut"
        await read(page(alice), session, seen, None)
        return seen

    seen = asyncio.run(main())
    assert [event["id"] for event in seen] == list(range(1, len(seen) + 1))
    assert (seen[0]["type"], seen[-1]["type"]) == ("accepted", "done")
    assert (
        "".join(event["text"] for event in seen if event["type"] == "delta").split() == "".join(WORDS).split()
    )


def test_anothers_session_is_as_one_that_is_not_there(alice: Person, bob: Person) -> None:
    session = f"s-{uuid4().hex[:8]}"
    alice.ask("help", session)

    async def main() -> None:
        async with page(alice).stream(session, "?after=0") as stream:
            assert await stream.read() is not None
        for name in (session, "none"):
            with pytest.raises(RefusedError) as error:
                async with page(bob).stream(name, "?after=0"):
                    pass
            assert (error.value.status, error.value.code) == (404, "session_not_found")

    asyncio.run(main())


@pytest.fixture
def own_server(shared_model: FakeModelServer) -> Iterator[RealServer]:
    with real_server(with_model(shared_model.url), before=UNATTACKED) as running:
        yield running


def test_a_restart_of_core_loses_and_repeats_nothing(own_server: RealServer, model: FakeModelServer) -> None:
    carl = new_person(own_server, "carl")
    model.say(Script(text="".join(WORDS), rate_per_s=40))

    async def main() -> list[Json]:
        seen: list[Json] = []
        await page(carl).call("POST", "/v1/sessions/s/turns", {"text": "go", "agent": "fake"})
        with suppress(CutError):
            await by_socket(page(carl), "s", seen, 4_000)
        count = len(own_server.logged("service_started", service="core"))
        os.kill(own_server.pid("core"), signal.SIGKILL)
        await asyncio.to_thread(own_server.wait_logged, "service_started", count + 1, service="core")
        await asyncio.to_thread(own_server.wait_ready)
        await by_socket(page(carl), "s", seen, None)
        return seen

    seen = asyncio.run(main())
    assert (seen[-1]["type"], seen[-1]["code"]) == ("error", "internal")
    numbers = [event["id"] for event in seen]
    assert numbers[:-1] == list(range(1, len(seen)))
    assert numbers[-1] > numbers[-2]
    said = "".join(event["text"] for event in seen if event["type"] == "delta")
    assert said
    assert "".join(WORDS).startswith(said)
