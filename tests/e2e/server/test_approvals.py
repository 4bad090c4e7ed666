"""A person is asked before a command runs: by the real server, over its restart too."""

import asyncio
import os
import signal
from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.fakes.browser import Browser, Json, PageSocket
from tests.fakes.model_server import FakeModelServer
from tests.fakes.real_server import UNATTACKED, Person, RealServer, new_person, real_server, with_model

ASKING = 'tools = ["run_command", "read_file"]\nask = ["run_command"]\n'


@pytest.fixture(scope="module")
def asking_server(shared_model: FakeModelServer) -> Iterator[RealServer]:
    sections = {**with_model(shared_model.url), "pool": {"idle_s": 0.5}, "agent.limits": {"wall_s": 20}}
    with real_server(sections, before=UNATTACKED) as running:
        yield running


def asked(server: RealServer, name: str) -> Person:
    """A person whose agent has to ask before it runs a command."""
    person = new_person(server, f"{name}-{uuid4().hex[:6]}")
    person.add_agent("careful", ASKING)
    return person


def page(person: Person) -> Browser:
    return Browser(person.server.url, person.token)


async def wanted(socket: PageSocket, command: str) -> Json:
    """Have the agent want to run a command; the event that asks for it."""
    socket.send(type="start", session="s", text=f"run: {command}", agent="careful")
    return (await socket.until("approval_wanted"))[-1]


def test_what_is_refused_does_not_run_and_what_is_allowed_does_once(server: RealServer, bob: Person) -> None:
    ann = asked(server, "ann")

    async def main() -> None:
        async with page(ann).socket() as socket:
            event = await wanted(socket, "touch first")
            assert (event["kind"], event["name"], event["step"]) == ("tool", "run_command", 1)
            assert "touch first" in event["arguments"]
            path = f"/v1/approvals/{event['approval']}"
            status, answer = await page(bob).call("POST", path, {"allow": True})
            assert (status, answer["error"]["code"]) == (404, "approval_not_found")
            status, answer = await page(ann).call("POST", path, {"allow": False})
            assert (status, answer["outcome"]) == (200, "refused")
            seen = await socket.until("done")
            result = next(e for e in seen if e["type"] == "tool_result")
            assert (result["ok"], result["text"]) == (
                False,
                "Not allowed: the person who was asked refused",
            )
            assert not (ann.home / "first").exists()
            event = await wanted(socket, "touch second")
            assert not (ann.home / "second").exists()
            answer = await socket.ask("approve", approval=event["approval"])
            assert answer["type"] == "decided"
            assert next(e["ok"] for e in await socket.until("done") if e["type"] == "tool_result")
            assert (ann.home / "second").exists()
            again = await socket.ask("approve", approval=event["approval"])
            assert again["status"] == 409

    asyncio.run(main())


def test_who_waits_keeps_their_jail_and_comes_back_to_the_question(asking_server: RealServer) -> None:
    ann = asked(asking_server, "ann")

    async def main() -> None:
        async with page(ann).socket() as socket:
            event = await wanted(socket, "touch made")
        # another's jail, of the same age, is given up as idle meanwhile
        other = asked(asking_server, "other")
        await asyncio.to_thread(other.ask, "help")
        await asyncio.to_thread(asking_server.wait_logged, "jail_ended", user=other.name)
        assert asking_server.logged("jail_ended", user=ann.name) == []
        async with page(ann).socket() as socket:
            await socket.ask("watch", session="s", after=event["id"] - 1)
            assert (await socket.until("approval_wanted"))[-1] == event
            await socket.ask("approve", approval=event["approval"])
            await socket.until("done")
        assert (ann.home / "made").exists()

    asyncio.run(main())


def test_after_a_restart_of_core_an_open_question_is_none_and_the_turn_asks_anew(
    asking_server: RealServer,
) -> None:
    ann = asked(asking_server, "ann")

    async def main() -> None:
        async with page(ann).socket() as socket:
            event = await wanted(socket, "echo ran >> made")
        count = len(asking_server.logged("service_started", service="core"))
        os.kill(asking_server.pid("core"), signal.SIGKILL)
        await asyncio.to_thread(asking_server.wait_logged, "service_started", count + 1, service="core")
        await asyncio.to_thread(asking_server.wait_ready)
        status, answer = await page(ann).call("POST", f"/v1/approvals/{event['approval']}", {"allow": True})
        assert (status, answer["error"]["outcome"]) == (409, "ended")
        async with page(ann).socket() as socket:
            await socket.ask("watch", session="s", after=event["id"])
            seen = await socket.until("approval_wanted")
            assert [e["type"] for e in seen if e["type"] in ("approval_resolved", "resumed")] == [
                "approval_resolved",
                "resumed",
            ]
            assert not (ann.home / "made").exists()
            await socket.ask("approve", approval=seen[-1]["approval"])
            seen += await socket.until("done")
        settled = [(e["approval"], e["outcome"]) for e in seen if e["type"] == "approval_resolved"]
        wanted_anew = next(e["approval"] for e in seen if e["type"] == "approval_wanted")
        assert settled == [(event["approval"], "ended"), (wanted_anew, "allowed")]
        assert (ann.home / "made").read_text() == "ran\n"

    asyncio.run(main())
