"""Approvals over HTTP and the WebSocket, in front of turns that a script plays."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from actors.asking import ApprovalWanted
from tests.fakes.browser import Browser, Json
from tests.fakes.hub_process import HubProcess
from tests.fakes.scripted_turns import WAIT_S, PlayedTurn

ARGUMENTS = '{"command": "rm -rf build"}'


def wanted(approval: str) -> ApprovalWanted:
    return ApprovalWanted(approval, "tool", "run_command", ARGUMENTS, 2_000_000_000, 1)


class Waiting:
    """A script that asks and goes on once the test lets it."""

    def __init__(self, hub: HubProcess) -> None:
        self.go_on = threading.Event()
        self._hub = hub
        hub.turns.script = self

    def __call__(self, turn: PlayedTurn) -> None:
        self._hub.turns.ask(turn, wanted(f"approval_of_{turn.spec.handle.user}"))
        assert self.go_on.wait(WAIT_S)
        turn.end()


@pytest.fixture
def waiting(hub: HubProcess) -> Iterator[Waiting]:
    waiting = Waiting(hub)
    yield waiting
    waiting.go_on.set()


def page(hub: HubProcess, user: str = "alice") -> Browser:
    return Browser(hub.url, f"token-{user}")


async def begin(hub: HubProcess, socket: Any) -> list[Json]:
    socket.send(type="start", session="s", text="go")
    return await socket.until("approval_wanted")  # type: ignore[no-any-return]


def test_an_approval_is_seen_listed_answered_and_seen_again(hub: HubProcess, waiting: Waiting) -> None:
    async def main() -> None:
        async with page(hub).socket() as socket:
            seen = (await begin(hub, socket))[-1]
            assert (seen["approval"], seen["name"], seen["step"]) == ("approval_of_alice", "run_command", 1)
            status, listed = await page(hub).call("GET", "/v1/approvals")
            (row,) = listed["data"]
            assert status == 200
            assert row == {
                "object": "approval", "id": "approval_of_alice", "turn": seen["turn"], "session": "s",
                "kind": "tool", "name": "run_command", "arguments": ARGUMENTS, "cut": False, "step": 1,
                "created_s": row["created_s"], "expires_s": 2_000_000_000, "outcome": None,
            }  # fmt: skip
            status, answer = await page(hub).call("POST", f"/v1/approvals/{row['id']}", {"allow": True})
            assert (status, answer["outcome"]) == (200, "allowed")
            resolved = (await socket.until("approval_resolved"))[-1]
            assert (resolved["approval"], resolved["outcome"]) == ("approval_of_alice", "allowed")
            status, answer = await page(hub).call("POST", f"/v1/approvals/{row['id']}", {"allow": False})
            assert (status, answer["error"]["code"]) == (409, "already_decided")
            assert answer["error"]["outcome"] == "allowed"
            assert (await page(hub).call("GET", "/v1/approvals"))[1]["data"] == []
            waiting.go_on.set()
            await socket.until("done")

    asyncio.run(main())


def test_anothers_approval_is_as_one_that_is_not_there(hub: HubProcess, waiting: Waiting) -> None:
    async def main() -> None:
        async with page(hub).socket() as socket, page(hub, "bob").socket() as bobs:
            await begin(hub, socket)
            assert (await page(hub, "bob").call("GET", "/v1/approvals"))[1]["data"] == []
            status, answer = await page(hub, "bob").call(
                "POST", "/v1/approvals/approval_of_alice", {"allow": True}
            )
            assert (status, answer["error"]["code"]) == (404, "approval_not_found")
            refused = await bobs.ask("approve", approval="approval_of_alice")
            assert (refused["type"], refused["status"]) == ("refused", 404)
            answer = await socket.ask("refuse", approval="approval_of_alice")
            assert (answer["type"], answer["allowed"]) == ("decided", False)

    asyncio.run(main())


@pytest.mark.parametrize(("word", "allowed"), [("approve", True), ("refuse", False)])
def test_it_is_answered_over_the_websocket_once(
    hub: HubProcess, waiting: Waiting, word: str, allowed: bool
) -> None:
    async def main() -> None:
        async with page(hub).socket() as socket:
            await begin(hub, socket)
            answer = await socket.ask(word, approval="approval_of_alice")
            assert answer == {
                "type": "decided", "ref": "r", "approval": "approval_of_alice", "allowed": allowed,
            }  # fmt: skip
            again = await socket.ask("approve", approval="approval_of_alice")
            assert (again["type"], again["status"], again["code"]) == ("refused", 409, "already_decided")

    asyncio.run(main())


def test_a_client_that_comes_back_is_told_of_what_still_waits(hub: HubProcess, waiting: Waiting) -> None:
    async def main() -> None:
        async with page(hub).socket() as socket:
            await begin(hub, socket)
        async with page(hub).socket() as socket:
            await socket.ask("watch", session="s", after=0)
            assert (await socket.until("approval_wanted"))[-1]["approval"] == "approval_of_alice"
            await socket.ask("refuse", approval="approval_of_alice")

    asyncio.run(main())


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({}, "missing_required_parameter", "allow"),
        ({"allow": "yes"}, "invalid_value", "allow"),
        ({"allow": 1}, "invalid_value", "allow"),
        ({"allow": True, "more": 1}, "unknown_parameter", "more"),
    ],
)
def test_an_answer_that_is_none_is_refused(hub: HubProcess, body: Json, code: str, param: str) -> None:
    async def main() -> None:
        status, answer = await page(hub).call("POST", "/v1/approvals/approval_1", body)
        assert (status, answer["error"]["code"], answer["error"]["param"]) == (400, code, param)

    asyncio.run(main())
