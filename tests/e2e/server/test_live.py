"""Watching turns by WebSocket and event stream, as pages do that lose their connection all the time."""

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest

from tests.fakes.browser import Browser, CutError, Json, RefusedError
from tests.fakes.model_server import Call, FakeModelServer, Script
from tests.fakes.pictures import png
from tests.fakes.real_server import (
    LIMIT_S,
    UNATTACKED,
    Person,
    RealServer,
    below,
    new_person,
    real_server,
    wait_gone,
    with_model,
)

CUTS = 50
LONG = Script(text=" ".join(f"word{n}" for n in range(20_000)), rate_per_s=150)
"""Longer than any of these tests; they end it."""


def page(person: Person, origin: str | None = None) -> Browser:
    return Browser(person.server.url, person.token, origin)


def fresh() -> str:
    return f"live-{uuid4().hex[:8]}"


@asynccontextmanager
async def long_turn(person: Person, model: FakeModelServer, session: str) -> AsyncIterator[Json]:
    """A turn that talks on until the block ends; what the server said when it began."""
    model.say(LONG)
    status, began = await page(person).call(
        "POST", f"/v1/sessions/{session}/turns", {"text": "talk", "agent": "fake"}
    )
    assert status == 202, began
    try:
        yield began
    finally:
        await page(person).call("POST", f"/v1/turns/{began['id']}/cancel", {})


async def by_socket(
    browser: Browser, session: str, after: int, budget: int | None, life_s: float
) -> AsyncIterator[Json]:
    async with browser.socket(budget) as socket:
        asyncio.get_running_loop().call_later(life_s, socket.cut)
        socket.send(type="watch", session=session, after=after)
        while isinstance(message := await socket.read(), dict):
            assert message["type"] != "refused", message
            if "id" in message:
                yield message


async def by_stream(
    browser: Browser, session: str, after: int, budget: int | None, life_s: float
) -> AsyncIterator[Json]:
    async with browser.stream(session, last_event_id=after, budget=budget) as stream:
        asyncio.get_running_loop().call_later(life_s, stream.cut)
        while (event := await stream.read()) is not None:
            assert event[0] == event[1]["id"]
            yield event[1]


class Reader:
    """Reads a session's events from the first on, one connection after the other."""

    def __init__(self, browser: Browser, session: str, way: str, seed: int) -> None:
        self.events: list[Json] = []
        self.cuts = 0
        self._browser, self._session = browser, session
        self._way = by_socket if way == "websocket" else by_stream
        self._random = random.Random(seed)

    @property
    def after(self) -> int:
        return self.events[-1]["id"] if self.events else 0

    async def be_cut(self) -> None:
        """Connect and lose it: in the middle of whatever comes, or at whatever moment."""
        budget, life_s = None, LIMIT_S
        if self._random.random() < 0.5:
            budget = self._random.randrange(4_000)
        else:
            life_s = self._random.uniform(0.0, 0.08)
        try:
            await self.read(budget, life_s)
        except CutError:
            self.cuts += 1

    async def to_the_end(self) -> None:
        """Read to the turn's last event."""
        async with asyncio.timeout(LIMIT_S):
            await self.read(None)

    async def read(self, budget: int | None, life_s: float = LIMIT_S) -> None:
        """Read on until the turn's last event; CutError once so many bytes came, or after so long."""
        reading = self._way(self._browser, self._session, self.after, budget, life_s)
        try:
            async for event in reading:
                self.events.append(event)
                if event["type"] in ("done", "error"):
                    return
        finally:
            await reading.aclose()  # type: ignore[attr-defined]


def test_a_page_cut_fifty_times_in_one_turn_reads_every_event_once_and_in_order(
    alice: Person, model: FakeModelServer
) -> None:
    async def main() -> None:
        session = fresh()
        seed = random.randrange(2**32)
        print("seed", seed)
        steady = Reader(page(alice), session, "websocket", 0)
        cut = [Reader(page(alice), session, way, seed) for way in ("websocket", "sse")]

        async def suffer(reader: Reader) -> None:
            for _ in range(CUTS):
                await reader.be_cut()

        async with long_turn(alice, model, session):
            watching = asyncio.create_task(steady.to_the_end())
            await asyncio.gather(*map(suffer, cut))
            assert not watching.done(), "the turn was to outlast all cuts"
        await asyncio.gather(watching, *(reader.to_the_end() for reader in cut))
        assert [reader.cuts for reader in cut] == [CUTS, CUTS]
        numbers = [event["id"] for event in steady.events]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        assert [steady.events[0]["type"], steady.events[-1]["type"]] == ["accepted", "error"]
        assert steady.events[-1]["code"] == "cancelled"
        said = "".join(event["text"] for event in steady.events if event["type"] == "delta")
        assert len(said) > 100
        assert LONG.text.startswith(said.strip())
        for reader in cut:
            assert reader.events == steady.events

    asyncio.run(main())


def test_anothers_turn_can_be_neither_watched_nor_ended_and_ones_own_can(
    alice: Person, bob: Person, model: FakeModelServer
) -> None:
    async def main() -> None:
        session = fresh()
        async with long_turn(alice, model, session) as began:
            async with page(bob).socket() as socket:
                answer = await socket.ask("watch", session=session, after=0)
                assert (answer["type"], answer["code"]) == ("refused", "session_not_found")
                answer = await socket.ask("cancel", turn=began["id"])
                assert (answer["type"], answer["code"]) == ("refused", "turn_not_found")
            with pytest.raises(RefusedError) as error:
                async with page(bob).stream(session):
                    pass
            assert (error.value.status, error.value.code) == (404, "session_not_found")
            async with page(alice).socket() as socket, page(alice).stream(session) as stream:
                assert (await socket.ask("watch", session=session, after=0))["type"] == "watching"
                assert (await socket.until("delta"))[-1]["turn"] == began["id"]
                assert await stream.read() is not None
                socket.send(type="cancel", turn=began["id"])
                assert (await socket.until("error"))[-1]["code"] == "cancelled"

    asyncio.run(main())


def test_a_page_of_another_origin_cannot_connect_and_one_of_our_own_can(alice: Person) -> None:
    async def main() -> None:
        with pytest.raises(RefusedError) as error:
            async with page(alice, "https://evil.example.com").socket():
                pass
        assert (error.value.status, error.value.code) == (403, "origin_refused")
        async with page(alice).socket() as socket:
            assert (await socket.ask("ping"))["type"] == "pong"

    asyncio.run(main())


def patient(model: FakeModelServer) -> dict[str, dict[str, Any]]:
    """A configuration in which a busy machine does not make the model server a silent one."""
    sections = with_model(model.url)
    sections["providers.fake"] |= {"connect_s": LIMIT_S, "first_byte_s": LIMIT_S, "idle_s": LIMIT_S}
    return sections


@pytest.fixture(scope="module")
def own_server(shared_model: FakeModelServer) -> Iterator[RealServer]:
    with real_server(patient(shared_model), before=UNATTACKED) as running:
        yield running


@pytest.fixture(scope="module")
def carl(own_server: RealServer) -> Person:
    return new_person(own_server, "carl")


async def kill(server: RealServer, who: str, person: Person) -> None:
    """SIGKILL for core, which is there again then, or for the first process of a person's jail."""
    if who == "core":
        count = len(server.logged("service_started", service="core"))
        os.kill(server.pid("core"), signal.SIGKILL)
        await asyncio.to_thread(server.wait_logged, "service_started", count + 1, service="core")
        await asyncio.to_thread(server.wait_ready)
    else:
        jails = server.admin.call("GET", "/v1/status")["jails"]
        (pid,) = [jail["pid"] for jail in jails if jail["user"] == person.name]
        os.kill(pid, signal.SIGKILL)


async def begin(person: Person, turn: Json, session: str, once: str) -> None:
    """Start a turn, and wait for the first event of a type."""
    status, began = await page(person).call("POST", f"/v1/sessions/{session}/turns", turn)
    assert status == 202, began
    async with page(person).socket() as socket:
        await socket.ask("watch", session=session, after=0)
        await socket.until(once)


async def read_on(person: Person, session: str) -> tuple[list[Json], list[Json]]:
    """All events of a session's turn, to its end, and the session's messages then."""
    reader = Reader(page(person), session, "websocket", 0)
    await reader.to_the_end()
    return reader.events, await messages(person, session)


async def messages(person: Person, session: str) -> list[Json]:
    status, found = await page(person).call("GET", f"/v1/sessions/{session}")
    assert status == 200, found
    kept: list[Json] = found["data"]
    return kept


def talk(model: FakeModelServer) -> Json:
    """A turn that talks on and, begun anew, has an answer."""
    model.say(LONG, Script(text="the whole answer"))
    return {"text": "go", "agent": "fake"}


def said(events: list[Json]) -> str:
    return "".join(event["text"] for event in events if event["type"] == "delta")


def assert_went_on(seen: list[Json], kept: list[Json]) -> None:
    types = [event["type"] for event in seen]
    assert types[-1] == "done", dict(seen[-1])
    assert (types[0], types[-1], types.count("resumed"), types.count("done")) == ("accepted", "done", 1, 1)
    numbers = [event["id"] for event in seen]
    assert numbers == sorted(set(numbers))
    at = types.index("resumed")
    assert seen[at]["after"] == seen[0]["id"]
    assert said(seen[at:]) == "the whole answer"
    assert LONG.text.startswith(said(seen[:at]).strip())
    assert [(m["role"], m["content"]) for m in kept] == [("user", "go"), ("assistant", "the whole answer")]


def acting(name: str) -> Json:
    """A turn that writes to a file and goes on and on; its first words come once it has written."""
    return {"text": f"run: echo ran >> {name}; echo begun; sleep 600"}


def assert_closed(person: Person, name: str, seen: list[Json], kept: list[Json]) -> None:
    assert seen[-1]["type"] == "error"
    assert "May have been done in part: step 1 run_command" in seen[-1]["message"]
    assert [message["role"] for message in kept] == ["user", "assistant"]
    assert "step 1 run_command" in kept[1]["content"]
    assert (person.home / name).read_text() == "ran\n"
    assert person.run("echo on").startswith("on")


@pytest.mark.parametrize("who", ["core", "worker"])
def test_a_turn_that_only_talked_goes_on_after_a_kill_and_is_one_message(
    own_server: RealServer, carl: Person, model: FakeModelServer, who: str
) -> None:
    async def main() -> tuple[list[Json], list[Json]]:
        session = fresh()
        await begin(carl, talk(model), session, "delta")
        await kill(own_server, who, carl)
        return await read_on(carl, session)

    assert_went_on(*asyncio.run(main()))


@pytest.mark.parametrize("who", ["core", "worker"])
def test_a_turn_whose_tool_acted_is_closed_after_a_kill_with_a_report_and_not_run_again(
    own_server: RealServer, carl: Person, who: str
) -> None:
    name = f"runs-{fresh()}"

    async def main() -> tuple[list[Json], list[Json]]:
        session = fresh()
        await begin(carl, acting(name), session, "tool_progress")
        await kill(own_server, who, carl)
        return await read_on(carl, session)

    seen, kept = asyncio.run(main())
    assert seen[-1]["code"] == {"core": "internal", "worker": "worker"}[who]
    assert_closed(carl, name, seen, kept)


def still_said(events: list[Json]) -> list[Json]:
    """What is left where each ``resumed`` takes back what it says."""
    left: list[Json] = []
    for event in events:
        if event["type"] == "resumed":
            left = [before for before in left if before["id"] <= event["after"]]
        left.append(event)
    return left


SHOW = Call("show_picture", '{"path": "shown.png"}', "call_1")
LONG_SEARCH = Call("search_files", '{"pattern": "(a+)+$", "path": "slow.txt"}', "call_2")


@pytest.mark.parametrize("who", ["core", "worker"])
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "not-kept"])
def test_a_picture_shown_before_a_kill_is_said_once_to_whoever_heeds_resumed(
    own_server: RealServer, carl: Person, model: FakeModelServer, who: str, kept: bool
) -> None:
    async def main() -> tuple[list[Json], list[Json]]:
        carl.put("slow.txt", "a" * 40 + "b")
        (carl.home / "shown.png").write_bytes(png())
        (carl.home / "shown.png").chmod(0o644)
        if kept:  # its round is a message, and the model talks on
            model.say(Script(calls=(SHOW,)), LONG, Script(text="there"))
        else:  # its round is not over
            model.say(Script(calls=(SHOW, LONG_SEARCH)), Script(calls=(SHOW,)), Script(text="there"))
        session = fresh()
        status, began = await page(carl).call(
            "POST", f"/v1/sessions/{session}/turns", {"text": "show it", "agent": "fake"}
        )
        assert status == 202, began
        async with page(carl).socket() as socket:
            await socket.ask("watch", session=session, after=0)
            await socket.until("picture")
            await socket.until("delta" if kept else "tool_call")
        await kill(own_server, who, carl)
        return await read_on(carl, session)

    seen, messages = asyncio.run(main())
    assert seen[-1]["type"] == "done", seen[-1]
    shown = [event for event in seen if event["type"] == "picture"]
    assert len(shown) == (1 if kept else 2)
    (left,) = [event for event in still_said(seen) if event["type"] == "picture"]
    assert (left["path"], left["size"]) == ("shown.png", len(png()))
    assert [m["picture"]["path"] for m in messages if "picture" in m] == ["shown.png"]
    assert len({event["step"] for event in shown}) == len(shown)


def test_after_everything_was_killed_at_once_turns_go_on_or_are_closed_at_the_next_start(
    model: FakeModelServer,
) -> None:
    with real_server(patient(model), before=UNATTACKED) as server:
        dora, emil, name, session = new_person(server, "dora"), new_person(server, "emil"), "runs", fresh()

        async def before() -> None:
            await begin(dora, talk(model), session, "delta")
            await begin(emil, acting(name), session, "tool_progress")

        async def after() -> list[tuple[list[Json], list[Json]]]:
            return [await read_on(person, session) for person in (dora, emil)]

        asyncio.run(before())
        pids = [process.pid for process in below(server.process.pid)]
        server.process.send_signal(signal.SIGSTOP)  # nobody is left to tidy up
        for service in ("core", "egress"):
            os.kill(server.pid(service), signal.SIGKILL)
        server.process.kill()
        server.wait()
        assert wait_gone(pids, LIMIT_S) == []
        server.start()
        went_on, closed = asyncio.run(after())
        assert_went_on(*went_on)
        assert_closed(emil, name, *closed)
