"""The event stream and the start by HTTP, against the real hub and turns under a script's hand."""

import asyncio
import json
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from core.config import LiveSection, SessionsSection
from tests.fakes.browser import Browser, CutError, RefusedError
from tests.fakes.hub_process import HubProcess
from tests.fakes.plain_client import PlainClient
from tests.fakes.scripted_turns import PlayedTurn


def page(hub: HubProcess, user: str = "alice") -> Browser:
    return Browser(hub.url, f"token-{user}")


def quiet(turn: PlayedTurn) -> None:
    """A script that leaves the turn to the test."""


def talk(turn: PlayedTurn) -> None:
    """A script that says more than a small log keeps."""
    turn.say(*["y" * 200] * 30)
    turn.end()


def begin(hub: HubProcess, plain: PlainClient, session: str = "s") -> PlayedTurn:
    """A turn of the test's own, accepted."""
    hub.turns.script = quiet
    answer = plain.ask("POST", f"/v1/sessions/{session}/turns", {"text": "hello"})
    assert answer.status == 202
    return hub.turns.next()


def test_a_turn_is_started_and_read_to_its_end(hub: HubProcess, plain: PlainClient) -> None:
    answer = plain.ask("POST", "/v1/sessions/s/turns", {"text": "hello", "sampling": {"temperature": 0.5}})
    turn = hub.turns.next().spec
    assert (answer.status, answer.json) == (
        202,
        {
            "object": "turn", "id": turn.turn, "session": "s", "after": 0,
            "events": "/v1/sessions/s/events?after=0&until=idle",
        },
    )  # fmt: skip
    assert turn.sampling.temperature == 0.5

    async def read() -> None:
        async with page(hub).stream("s", "?after=0&until=idle") as stream:
            events = []
            while (event := await stream.read()) is not None:
                assert event[0] == event[1]["id"]
                events.append(event[1])
        assert [event["type"] for event in events] == ["accepted", *["delta"] * 3, "usage", "done"]
        async with page(hub).socket() as socket:
            await socket.ask("watch", session="s", after=0)
            assert await socket.until("done") == events

    asyncio.run(read())


def test_a_client_that_comes_back_says_where_it_was(hub: HubProcess, plain: PlainClient) -> None:
    turn = begin(hub, plain)

    async def main() -> None:
        async with page(hub).stream("s", "?after=0") as stream:
            turn.say("a", "b")
            seen = [await stream.read() for _ in range(3)]
            stream.cut()
        last = seen[-1]
        assert last is not None
        turn.say("c")
        # the header goes before the URL, which still says where the client began at first
        async with page(hub).stream("s", "?after=0&until=idle", last_event_id=last[0]) as stream:
            turn.end()
            rest = await stream.rest()
        assert [event["id"] for event in rest] == [4, 5, 6]
        with pytest.raises(RefusedError) as error:
            async with page(hub).stream("s", "?until=idle", last_event_id=6):
                pass
        assert error.value.status == 204  # which keeps an EventSource from coming back

    asyncio.run(main())


def test_a_stream_goes_on_after_a_turns_end_unless_it_is_to_end(hub: HubProcess, plain: PlainClient) -> None:
    async def main() -> None:
        turn = await asyncio.to_thread(begin, hub, plain)
        async with page(hub).stream("s") as onward, page(hub).stream("s", "?until=idle") as until:
            turn.end()
            assert [event["type"] for event in await until.rest()] == ["usage", "done"]
            turn = await asyncio.to_thread(begin, hub, plain)
            turn.end()
            types: list[str] = []
            while len(types) < 5:
                event = await onward.read()
                assert event is not None
                types.append(event[1]["type"])
            assert types == ["usage", "done", "accepted", "usage", "done"]

    asyncio.run(main())


def test_a_silent_stream_gives_signs_of_life_and_ends_when_idle(tmp_path: Path) -> None:
    hub = HubProcess(tmp_path, keep_alive_s=0.05, live=LiveSection(idle_s=1.0))
    try:
        plain = PlainClient(hub.url, {"Authorization": "Bearer token-alice"})
        turn = begin(hub, plain)
        request = urllib.request.Request(
            f"{hub.url}/v1/sessions/s/events?after=1", headers={"Authorization": "Bearer token-alice"}
        )
        with urllib.request.urlopen(request, timeout=20) as response:
            text = response.read().decode()
        assert text.startswith("retry: 1000\n\n")
        assert text.count(": still here\n\n") >= 3
        ended = json.loads(text.rstrip().rpartition("data: ")[2])
        assert (ended["code"], ended["last"]) == ("idle", 1)
        turn.end()
    finally:
        hub.close()


@pytest.mark.parametrize(
    ("path", "headers", "status", "code"),
    [
        ("s/events?after=x", {}, 400, "invalid_value"),
        ("s/events?after=-1", {}, 400, "invalid_value"),
        ("s/events?after=99999999999999999", {}, 400, "invalid_value"),
        ("s/events", {"Last-Event-ID": "x"}, 400, "invalid_value"),
        ("s/events?until=never", {}, 400, "invalid_value"),
        ("none/events", {}, 404, "session_not_found"),
        ("..%2Fx/events", {}, 404, "session_not_found"),
        ("s/events?after=7", {}, 410, "ahead"),
        ("s/events", {"x-api-key": "token-bob"}, 404, "session_not_found"),
        ("s/events", {"x-api-key": "nonsense"}, 401, "invalid_token"),
    ],
)
def test_what_cannot_be_watched_is_refused(
    hub: HubProcess, plain: PlainClient, path: str, headers: dict[str, str], status: int, code: str
) -> None:
    plain.ask("POST", "/v1/sessions/s/turns", {"text": "hello"})
    hub.turns.next().ended.wait(10)
    asker = PlainClient(hub.url) if "x-api-key" in headers else plain
    answer = asker.ask("GET", f"/v1/sessions/{path}", None, headers)
    assert (answer.status, answer.json["error"]["code"]) == (status, code)


def test_a_stream_behind_the_log_is_told_its_oldest_event(tmp_path: Path) -> None:
    hub = HubProcess(tmp_path, sessions=SessionsSection(log_bytes=2_000))
    try:
        plain = PlainClient(hub.url, {"Authorization": "Bearer token-alice"})
        hub.turns.script = talk
        plain.ask("POST", "/v1/sessions/s/turns", {"text": "hello"})

        async def main() -> None:
            with suppress(RefusedError):  # it may be over already
                async with page(hub).stream("s", "?until=idle") as stream:
                    await stream.rest()
            with pytest.raises(RefusedError) as error:
                async with page(hub).stream("s", last_event_id=1):
                    pass
            assert (error.value.status, error.value.code) == (410, "behind")
            oldest = error.value.body["error"]["oldest"]
            assert error.value.body["error"]["last"] == 33
            async with page(hub).stream("s", "?until=idle", last_event_id=oldest - 1) as stream:
                assert [event["id"] for event in await stream.rest()] == list(range(oldest, 34))

        asyncio.run(main())
    finally:
        hub.close()


def test_a_reader_that_does_not_read_is_cut_and_another_is_not(tmp_path: Path) -> None:
    hub = HubProcess(tmp_path, stall_s=1.0)
    try:
        plain = PlainClient(hub.url, {"Authorization": "Bearer token-alice"})

        async def main() -> None:
            turn = await asyncio.to_thread(begin, hub, plain)
            lazy = Browser(hub.url, "token-alice", receive_bytes=16_384)
            async with lazy.stream("s") as slow, page(hub).stream("s", "?until=idle") as quick:
                while hub.sample("certosa_streams_open", kind="sse") == 2:
                    turn.say("x" * 100_000)
                    assert await quick.read() is not None
                turn.end()
                assert [event["type"] for event in await quick.rest()] == ["usage", "done"]
                with pytest.raises(CutError):
                    await slow.rest()

        asyncio.run(main())
    finally:
        hub.close()


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({}, "missing_required_parameter", "text"),
        ([], "invalid_value", None),
        ({"text": ""}, "invalid_value", "text"),
        ({"text": "x", "more": 1}, "unknown_parameter", "more"),
        ({"text": "x", "key": ""}, "invalid_value", "key"),
        ({"text": "x", "sampling": {"temperature": 3}}, "invalid_value", "sampling.temperature"),
        ({"text": "é" * 500_000}, "message_too_long", "text"),
        ({"text": "x", "agent": "none"}, "agent_not_found", "agent"),
    ],
)
def test_a_start_that_will_not_do_is_refused_by_the_fields_name(
    hub: HubProcess, plain: PlainClient, body: object, code: str, param: str | None
) -> None:
    answer = plain.ask("POST", "/v1/sessions/s/turns", body)
    assert answer.status == (404 if code == "agent_not_found" else 400)
    assert (answer.error["code"], answer.error["param"]) == (code, param)
    assert plain.ask("GET", "/v1/sessions/s").status == 404


def test_a_start_that_its_session_refuses_names_the_path(hub: HubProcess, plain: PlainClient) -> None:
    refused = plain.ask("POST", "/v1/sessions/..%2Fx/turns", {"text": "x"})
    assert (refused.error["code"], refused.error["param"]) == ("invalid_session_id", "id")
    turn = begin(hub, plain)
    refused = plain.ask("POST", "/v1/sessions/s/turns", {"text": "again"})
    assert (refused.status, refused.error["code"], refused.error["param"]) == (409, "session_busy", "id")
    turn.end()


def test_the_schemas_are_served_to_everybody(hub: HubProcess) -> None:
    anybody = PlainClient(hub.url, {})
    for path in anybody.ask("GET", "/v1/schema").json["data"]:
        answer = anybody.ask("GET", path)
        assert answer.status == 200
        assert answer.json["$defs"]
    assert anybody.ask("GET", "/v1/schema/none.json").status == 404
