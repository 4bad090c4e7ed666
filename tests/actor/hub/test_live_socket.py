"""The WebSocket, against the real hub, a page's client, and turns under a script's hand."""

import asyncio
import functools
import json
import re
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.config import AccessSection, LiveSection, SessionsSection
from core.sessions import StorageError
from jail.wire.schema import Failure, TurnEnd, Usage
from tests.fakes.browser import Browser, Closed, CutError, Json, PageSocket, RefusedError, frame
from tests.fakes.hub_process import HubProcess
from tests.fakes.scripted_turns import PlayedTurn

FULL = StorageError("unavailable", "the disk is full")


@pytest.fixture
def make_hub(tmp_path: Path) -> Iterator[Callable[..., HubProcess]]:
    """Makes hubs with a [live] section of their own, and origins that may call."""
    made: list[HubProcess] = []

    def make(
        *, stall_s: float = 30.0, log_bytes: int = 8 << 20, origins: tuple[str, ...] = (), **live: Any
    ) -> HubProcess:
        found = HubProcess(
            tmp_path / f"hub{len(made)}",
            stall_s,
            live=LiveSection(**live),
            sessions=SessionsSection(log_bytes=log_bytes),
            access=AccessSection(origins=origins),
        )
        made.append(found)
        return found

    yield make
    for one in made:
        one.close()


def page(hub: HubProcess, user: str = "alice", **more: Any) -> Browser:
    return Browser(hub.url, f"token-{user}", **more)


def quiet(turn: PlayedTurn) -> None:
    """A script that leaves the turn to the test."""


def asynchronous(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


async def start(hub: HubProcess, socket: PageSocket, session: str = "s", **more: Any) -> PlayedTurn:
    """A turn of the test's own, accepted."""
    hub.turns.script = quiet
    socket.send(type="start", session=session, text="hello", **more)
    turn = await asyncio.to_thread(hub.turns.next)
    await socket.until("started")
    return turn


def ids(events: list[Json]) -> list[int]:
    return [event["id"] for event in events if "id" in event]


def told(events: list[Json]) -> str:
    return "".join(event["text"] for event in events if event["type"] == "delta")


# ---- a turn ---------------------------------------------------------------------------------------


@asynchronous
async def test_a_turn_is_started_and_its_events_come_in_order_with_their_place(hub: HubProcess) -> None:
    async with page(hub).socket() as socket:
        assert socket.headers["sec-websocket-protocol"] == "certosa.v1"
        socket.send(type="start", session="s", text="hello", ref="one")
        started, *events = await socket.until("done")
    turn = started["turn"]
    assert started == {"type": "started", "ref": "one", "session": "s", "turn": turn, "after": 0}
    assert [event["type"] for event in events] == ["accepted", "delta", "delta", "delta", "usage", "done"]
    assert ids(events) == [1, 2, 3, 4, 5, 6]
    assert {(event["session"], event["turn"]) for event in events} == {("s", turn)}
    assert all(event["time"] > 1_700_000_000 for event in events)
    assert re.fullmatch(r"req_[0-9a-f]{24}", events[0]["request"])
    assert events[0] | {"time": 0, "request": ""} == {
        "type": "accepted", "session": "s", "turn": turn, "id": 1, "time": 0,
        "agent": "assistant", "seq": 1, "text": "hello", "cut": False, "request": "",
    }  # fmt: skip
    assert told(events) == "Hello alice"
    assert (events[4]["input_tokens"], events[4]["output_tokens"]) == (3, 2)
    assert events[5]["finish"] == "stop"


@asynchronous
async def test_tools_and_a_failure_come_as_events_too(hub: HubProcess) -> None:
    async with page(hub).socket() as socket:
        turn = await start(hub, socket)
        turn.run_tool(1, "read_file", "the text")
        turn.end(Failure("upstream_rate_limit", "slow down", 7))
        events = await socket.until("error")
    place = {name: events[-1][name] for name in ("session", "turn")}
    call, result, error = (
        {k: v for k, v in e.items() if k not in ("id", "time", *place)} for e in events[-3:]
    )
    assert call == {"type": "tool_call", "step": 1, "name": "read_file", "arguments": "{}"}
    assert result == {"type": "tool_result", "step": 1, "ok": True, "text": "the text"}
    assert error == {
        "type": "error", "code": "upstream_rate_limit", "message": "slow down", "retry_after_s": 7
    }  # fmt: skip


@asynchronous
async def test_a_turn_goes_on_without_its_client_who_comes_back_and_has_missed_nothing(
    hub: HubProcess,
) -> None:
    async with page(hub).socket() as socket:
        turn = await start(hub, socket)
        turn.say("before ")
        (*_, seen) = await socket.until("delta")
        socket.cut()
    turn.say("while ", "away ")
    async with page(hub).socket() as again:
        watching = await again.ask("watch", session="s", after=seen["id"])
        assert watching == {"type": "watching", "ref": "r", "session": "s", "after": seen["id"]}
        turn.say("after")
        turn.end()
        events = await again.until("done")
    assert told(events) == "while away after"
    assert ids(events) == list(range(seen["id"] + 1, seen["id"] + 6))


@asynchronous
async def test_a_turn_is_cancelled_from_another_connection(hub: HubProcess) -> None:
    async with page(hub).socket() as one, page(hub).socket() as other:
        turn = await start(hub, one)
        name = turn.spec.turn
        async with page(hub, "bob").socket() as bobs:
            refused = await bobs.ask("cancel", turn=name)
            assert (refused["status"], refused["code"]) == (404, "turn_not_found")
            assert not turn.cancelled.is_set()
        assert await other.ask("cancel", turn=name) == {"type": "cancelling", "ref": "r", "turn": name}
        events = await one.until("error")
        assert events[-1]["code"] == "cancelled"
        assert (await other.ask("cancel", turn=name))["code"] == "turn_not_found"


@asynchronous
async def test_a_second_turn_in_a_session_is_refused_until_the_first_has_ended(hub: HubProcess) -> None:
    async with page(hub).socket() as socket:
        turn = await start(hub, socket)
        refused = await socket.ask("start", session="s", text="again")
        assert (refused["status"], refused["code"], refused["retry_after_s"]) == (409, "session_busy", 2)
        turn.end()
        await socket.until("done")
        assert (await socket.ask("start", session="s", text="again"))["type"] == "started"


@asynchronous
async def test_a_start_sent_again_with_its_key_starts_nothing_and_answers_the_same(hub: HubProcess) -> None:
    hub.turns.script = quiet
    async with page(hub).socket() as socket:
        first = await socket.ask("start", session="s", text="once", key="k1", watch=False)
        turn = await asyncio.to_thread(hub.turns.next)
        assert await socket.ask("start", session="s", text="once", key="k1", watch=False) == first
        turn.end()
        status, body = await page(hub).call("POST", "/v1/sessions/s/turns", {"text": "once", "key": "k1"})
        assert (status, body["id"], body["after"]) == (200, first["turn"], first["after"])
        assert hub.turns.started.empty()
        # another's key of the same name is another, and so is the same in another session
        other = await socket.ask("start", session="s2", text="once", key="k1", watch=False)
        assert other["turn"] != first["turn"]
        async with page(hub, "bob").socket() as bobs:
            theirs = await bobs.ask("start", session="s", text="once", key="k1", watch=False)
            assert theirs["turn"] not in (first["turn"], other["turn"])
        for _ in range(2):
            (await asyncio.to_thread(hub.turns.next)).end()


# ---- several clients ------------------------------------------------------------------------------


@asynchronous
async def test_two_clients_each_have_a_place_of_their_own(hub: HubProcess) -> None:
    async with page(hub).socket() as one, page(hub).socket() as two:
        turn = await start(hub, one)
        turn.say("a")
        first = await one.until("delta")
        await two.ask("watch", session="s", after=0)
        turn.say("b")
        turn.end()
        assert [told(await socket.until("done")) for socket in (one, two)] == ["b", "ab"]
        # a third, which wants only what is new, and one that has half
        async with page(hub).socket() as three:
            assert (await three.ask("watch", session="s"))["after"] == 5
            await three.ask("unwatch", session="s")
            await three.ask("watch", session="s", after=first[-1]["id"])
            assert ids(await three.until("done")) == [3, 4, 5]


@asynchronous
async def test_one_connection_watches_several_sessions(hub: HubProcess) -> None:
    async with page(hub).socket() as socket:
        one, two = await start(hub, socket, "one"), await start(hub, socket, "two")
        for turn in (one, two, one):
            turn.say("x")
        one.end()
        events = await socket.until("done")
        two.end()
        events += await socket.until("done")
    for session, expected in (("one", [1, 2, 3, 4, 5]), ("two", [1, 2, 3, 4])):
        assert ids([event for event in events if event["session"] == session])[-3:] == expected[-3:]


@asynchronous
async def test_anothers_session_is_as_one_that_is_not_there(hub: HubProcess) -> None:
    async with page(hub).socket() as alices, page(hub, "bob").socket() as bobs:
        turn = await start(hub, alices, "diary")
        turn.say("secret")
        await alices.until("delta")
        refused = await bobs.ask("watch", session="diary", after=0)
        assert refused == await bobs.ask("watch", session="none", after=0)
        assert (refused["status"], refused["code"]) == (404, "session_not_found")
        # a session of the same name of their own is theirs alone
        theirs = await start(hub, bobs, "diary")
        theirs.say("mine")
        theirs.end()
        assert told(await bobs.until("done")) == "mine"
        turn.end()
        assert told(await alices.until("done")) == ""


@asynchronous
async def test_a_slow_client_is_closed_with_its_last_id_and_nobody_else_notices(
    make_hub: Callable[..., HubProcess],
) -> None:
    hub = make_hub(stall_s=1.0, log_bytes=256 << 20)
    async with page(hub, receive_bytes=16_384).socket() as slow, page(hub).socket() as quick:
        turn = await start(hub, slow)
        await quick.ask("watch", session="s", after=0)
        seen: list[Json] = []
        sent = 0
        while hub.sample("certosa_streams_open", kind="websocket") == 2:
            turn.say("x" * 100_000)
            seen += await quick.until("delta")
            sent += 1
        messages: list[Json] = []
        while isinstance(message := await slow.read(), dict):
            messages.append(message)
        turn.end()
        seen += await quick.until("done")
    last = ids(messages)[-1]
    assert ids(messages) == list(range(1, last + 1))
    assert last < sent
    assert (messages[-1]["type"], messages[-1]["code"], messages[-1]["last"]) == ("watch_ended", "slow", last)
    assert message == Closed(4003, f"slow last={last}")
    assert ids(seen) == list(range(1, sent + 4))


@asynchronous
async def test_a_client_behind_the_log_is_told_its_oldest_event(make_hub: Callable[..., HubProcess]) -> None:
    hub = make_hub(log_bytes=2_000)
    async with page(hub).socket() as socket:
        turn = await start(hub, socket)
        for _ in range(30):
            turn.say("y" * 200)
            await socket.until("delta")
        turn.end()
        await socket.until("done")
    async with page(hub).socket() as socket:
        refused = await socket.ask("watch", session="s", after=3)
        oldest = refused["oldest"]
        assert (refused["status"], refused["code"], refused["last"]) == (410, "behind", 33)
        assert oldest > 20
        await socket.ask("watch", session="s", after=oldest - 1)
        assert ids(await socket.until("done")) == list(range(oldest, 34))
        refused = await socket.ask("watch", session="none")
        assert refused["code"] == "session_not_found"
    async with page(hub).socket() as socket:
        refused = await socket.ask("watch", session="s", after=34)
        assert (refused["status"], refused["code"], refused["last"]) == (410, "ahead", 33)


# ---- who may connect ------------------------------------------------------------------------------


@asynchronous
async def test_pages_of_other_origins_are_refused_unless_listed(make_hub: Callable[..., HubProcess]) -> None:
    hub = make_hub(origins=("https://chat.example.com",))
    for origin in (None, "https://chat.example.com", ""):  # our own, a listed one, no browser
        async with page(hub, origin=origin).socket() as socket:
            assert await socket.ask("ping") == {"type": "pong", "ref": "r"}
    for origin in ("https://evil.example.com", "null"):
        with pytest.raises(RefusedError) as error:
            async with page(hub, origin=origin).socket():
                pass
        assert (error.value.status, error.value.code) == (403, "origin_refused")


@asynchronous
async def test_the_token_comes_in_a_header_or_as_a_subprotocol_and_never_goes_back(hub: HubProcess) -> None:
    async with page(hub).socket() as socket:
        assert "token-alice" not in str(socket.headers)
    bearer = {"Authorization": "Bearer token-alice", "Sec-WebSocket-Protocol": ""}
    async with page(hub).socket(headers=bearer) as socket:
        assert "sec-websocket-protocol" not in socket.headers
        assert (await socket.ask("ping"))["type"] == "pong"


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Sec-WebSocket-Protocol": "certosa.v1"}, 401, "missing_token"),
        ({"Sec-WebSocket-Protocol": ""}, 401, "missing_token"),
        ({"Sec-WebSocket-Protocol": "certosa.v1, certosa.bearer.token-carl"}, 401, "invalid_token"),
        ({"Sec-WebSocket-Protocol": "certosa.bearer.token-alice"}, 400, "unknown_protocol"),
        ({"Sec-WebSocket-Protocol": "chat"}, 400, "unknown_protocol"),
        ({"Authorization": "Bearer token-bob"}, 400, "duplicate_header"),
        (
            {"Sec-WebSocket-Protocol": "certosa.v1, certosa.bearer.token-alice, certosa.bearer.token-bob"},
            400,
            "invalid_value",
        ),
        ({"Upgrade": ""}, 426, "upgrade_required"),
        ({"Sec-WebSocket-Version": "99"}, 400, "http_error"),
        ({"Sec-WebSocket-Key": "short"}, 400, "http_error"),
    ],
)
def test_a_handshake_that_will_not_do_is_refused(
    hub: HubProcess, headers: dict[str, str], status: int, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def connect() -> None:
        async with page(hub).socket(headers=headers):
            raise AssertionError("it was let in")

    with pytest.raises(RefusedError) as error:
        asyncio.run(connect())
    assert (error.value.status, error.value.code) == (status, code)
    assert "token-" not in caplog.text


# ---- limits ---------------------------------------------------------------------------------------


@asynchronous
async def test_a_user_has_so_many_connections_of_either_kind(make_hub: Callable[..., HubProcess]) -> None:
    hub = make_hub(per_user=2)
    alice = page(hub)
    async with alice.socket() as socket:
        socket.send(type="start", session="s", text="x")
        await socket.until("done")
        async with alice.stream("s"):
            for connect in (alice.socket(), alice.stream("s")):
                with pytest.raises(RefusedError) as error:
                    async with connect:
                        pass
                assert (error.value.status, error.value.code) == (429, "too_many_connections")
            async with page(hub, "bob").socket() as bobs:
                assert (await bobs.ask("ping"))["type"] == "pong"
            assert hub.sample("certosa_streams_open", kind="websocket") == 2
            assert hub.sample("certosa_streams_open", kind="sse") == 1
        await gone(hub, "sse")
        async with alice.stream("s"):
            pass


async def gone(hub: HubProcess, kind: str) -> None:
    while hub.sample("certosa_streams_open", kind=kind):
        await asyncio.sleep(0.01)


@asynchronous
async def test_a_message_too_long_ends_the_connection_and_one_that_fits_does_not(
    make_hub: Callable[..., HubProcess],
) -> None:
    hub = make_hub(message_bytes=2_000)
    async with page(hub).socket() as socket:
        assert (await socket.ask("start", session="s", text="x" * 1_800))["type"] == "started"
        await socket.until("done")
        socket.send(type="start", session="s", text="x" * 2_100)
        assert (await socket.closed()).code == 1009


@asynchronous
async def test_requests_past_the_rate_are_refused_and_a_flood_is_shown_out(
    make_hub: Callable[..., HubProcess],
) -> None:
    hub = make_hub(requests_per_s=1.0)
    async with page(hub).socket() as socket:
        for number in range(70):
            socket.send(type="ping", ref=str(number))
        answers: list[Json] = []
        while isinstance(message := await socket.read(), dict):
            answers.append(message)
    assert sorted(a["ref"] for a in answers if a["type"] == "pong") == ["0", "1"]
    refused = [a for a in answers if a["type"] == "refused"]
    assert {(a["status"], a["code"], a["retry_after_s"]) for a in refused} == {(429, "too_many_requests", 1)}
    assert [a["ref"] for a in refused] == [str(number) for number in range(2, 2 + len(refused))]
    assert message == Closed(1008, "policy")


@asynchronous
@pytest.mark.parametrize("opcode", [9, 10])
async def test_some_pings_and_pongs_are_served_and_a_flood_of_them_is_shown_out(
    hub: HubProcess, opcode: int
) -> None:
    async with page(hub).socket() as socket:
        for _ in range(50):
            socket.send_frame(opcode, b"")
        assert (await socket.ask("ping"))["type"] == "pong"
        assert socket.pongs == (50 if opcode == 9 else 0)
        for _ in range(2_000):
            socket.send_frame(opcode, b"")
        assert await socket.closed() == Closed(1008, "policy")
        assert socket.pongs < 200


@asynchronous
@pytest.mark.parametrize("early", [False, True], ids=["after", "with the handshake"])
@pytest.mark.parametrize("kind", ["continuations", "requests", "empty messages"])
async def test_a_flood_of_small_frames_is_shown_out_unread(hub: HubProcess, kind: str, early: bool) -> None:
    flood = {
        "continuations": frame(1, b"", last=False) + frame(0, b"", last=False) * 20_000,
        "requests": frame(1, b'{"type": "ping"}') * 20_000,
        "empty messages": frame(1, b"") * 20_000,
    }[kind]
    async with page(hub).socket(early=flood if early else b"") as socket:
        if not early:
            socket.send_bytes(flood)
        answers = 0
        while isinstance(message := await socket.read(), dict):
            answers += 1
        assert message == Closed(1008, "policy")
        assert answers < 200


@asynchronous
async def test_a_message_in_many_pieces_is_read(hub: HubProcess) -> None:
    async with page(hub).socket() as socket:
        text = b'{"type": "ping", "ref": "in pieces"}'
        for at, byte in enumerate(text):
            socket.send_frame(0 if at else 1, bytes([byte]), last=at == len(text) - 1)
        assert await socket.read() == {"type": "pong", "ref": "in pieces"}


@asynchronous
async def test_bytes_have_a_pace_and_all_that_came_is_served(
    make_hub: Callable[..., HubProcess],
) -> None:
    hub = make_hub(message_bytes=2_000, requests_per_s=1_000.0)
    loop = asyncio.get_running_loop()
    async with page(hub).socket() as socket:
        began_s = loop.time()
        for number in range(14):
            socket.send_frame(1, json.dumps({"type": "ping", "ref": str(number)}).encode().ljust(1_950))
        for number in range(14):
            assert await socket.read() == {"type": "pong", "ref": str(number)}
        assert await socket.ask("ping") == {"type": "pong", "ref": "r"}
        # 16,000 bytes at once, then 8,000 a second
        assert loop.time() - began_s > 1.0


@asynchronous
async def test_a_request_that_will_not_do_is_refused_and_the_next_is_served(hub: HubProcess) -> None:
    async with page(hub).socket() as socket:
        for text, code in (
            (b"not json", "invalid_json"),
            (b'"ping"', "invalid_value"),
            (b'{"type": "dance", "ref": "r1"}', "invalid_value"),
            (b'{"type": "ping", "more": 1, "ref": "r1"}', "invalid_value"),
            (b'{"type": "watch", "session": "s", "after": -1, "ref": "r1"}', "invalid_value"),
            (b'{"type": "start", "session": "s", "text": "", "ref": "r1"}', "invalid_value"),
            (b"[" * 100_000, "invalid_value"),
            (b'{"type": "start", "session": "../x", "text": "x", "ref": "r1"}', "invalid_session_id"),
            (
                b'{"type": "start", "session": "s", "text": "x", "agent": "none", "ref": "r1"}',
                "agent_not_found",
            ),
            (b'{"type": "unwatch", "session": "s", "ref": "r1"}', "not_watched"),
        ):
            socket.send_frame(1, text)
            refused = await socket.read()
            assert isinstance(refused, dict)
            assert (refused["type"], refused["code"]) == ("refused", code), text
            assert refused["ref"] == ("r1" if b"r1" in text else "")
        assert (await socket.ask("ping"))["type"] == "pong"
        assert hub.turns.started.empty()


@asynchronous
async def test_bytes_that_are_no_text_end_the_connection(hub: HubProcess) -> None:
    for opcode, data, code in ((2, b"{}", 1008), (1, b"\xff\xfe", 1007)):
        async with page(hub).socket() as socket:
            socket.send_frame(opcode, data)
            assert (await socket.closed()).code == code


@asynchronous
async def test_a_connection_watches_so_many_sessions_and_each_once(
    make_hub: Callable[..., HubProcess],
) -> None:
    hub = make_hub(watches=2)
    async with page(hub).socket() as socket:
        for session in ("a", "b"):
            socket.send(type="start", session=session, text="x")
            await socket.until("done")
        assert (await socket.ask("watch", session="a"))["code"] == "already_watched"
        refused = await socket.ask("start", session="c", text="x")
        assert (refused["status"], refused["code"]) == (429, "too_many_watches")
        unwatched = await socket.ask("unwatch", session="a")
        assert unwatched == {"type": "unwatched", "ref": "r", "session": "a", "last": 6}
        assert (await socket.ask("start", session="c", text="x"))["type"] == "started"
        assert told(await socket.until("done")) == "Hello alice"


@asynchronous
async def test_a_silent_client_is_pinged_and_one_that_does_not_answer_is_gone(
    make_hub: Callable[..., HubProcess],
) -> None:
    hub = make_hub(ping_s=0.8)
    async with page(hub).socket() as alive, page(hub).socket() as dead:
        dead.answers_pings = False

        async def wait_for_pings() -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(3.2):
                    await alive.read()

        pinging = asyncio.create_task(wait_for_pings())
        with pytest.raises(CutError):
            await dead.read()
        await pinging
        assert alive.pings >= 2


@asynchronous
async def test_a_connection_without_requests_or_events_is_closed_as_idle(
    make_hub: Callable[..., HubProcess],
) -> None:
    hub = make_hub(idle_s=2.0)
    loop = asyncio.get_running_loop()
    async with page(hub).socket() as idle, page(hub).socket() as busy:
        turn = await start(hub, busy)
        began_s = loop.time()
        closing = asyncio.create_task(idle.closed())
        while not closing.done() or loop.time() < began_s + 2.5:
            turn.say("x")  # events are activity too
            await busy.until("delta")
            await asyncio.sleep(0.05)
        assert await closing == Closed(4002, "idle")
        turn.end()
        last = (await busy.until("done"))[-1]["id"]
        assert await busy.closed() == Closed(4002, f"idle last={last}")


# ---- ends -----------------------------------------------------------------------------------------


@asynchronous
async def test_a_user_who_is_cut_off_is_closed_at_once_and_another_is_not(hub: HubProcess) -> None:
    async with page(hub).socket() as alices, page(hub, "bob").socket() as bobs:
        turn = await start(hub, alices)
        async with page(hub).stream("s") as stream:
            hub.book.handles["alice"].standing.end()
            hub.book.revoke("alice")
            hub.run(cut_off(hub, "alice"))
            assert (await stream.rest())[-1]["code"] == "signed_out"
        ended = (await alices.until("watch_ended"))[-1]
        assert ended["code"] == "signed_out"
        assert await alices.closed() == Closed(4001, f"signed_out last={ended['last']}")
        assert turn.cancelled.is_set()
        assert (await bobs.ask("ping"))["type"] == "pong"
        with pytest.raises(RefusedError) as error:
            async with page(hub).socket():
                pass
        assert error.value.code == "invalid_token"


async def cut_off(hub: HubProcess, user: str) -> None:
    hub.server.cut_off(user)


@asynchronous
async def test_a_revoked_tokens_connections_are_closed_and_a_good_ones_are_not(hub: HubProcess) -> None:
    async with page(hub).socket() as alices, page(hub, "bob").socket() as bobs:
        hub.book.revoke("alice")
        hub.run(hub.server.recheck_tokens())
        assert await alices.closed() == Closed(4001, "signed_out")
        hub.book.broken = True
        hub.run(hub.server.recheck_tokens())  # nobody can say: nobody is closed
        assert (await bobs.ask("ping"))["type"] == "pong"


@asynchronous
async def test_a_deleted_session_ends_its_watches_and_one_of_the_same_name_begins_anew(
    hub: HubProcess,
) -> None:
    async with page(hub).socket() as socket:
        socket.send(type="start", session="s", text="x")
        await socket.until("done")
        status, _ = await page(hub).call("DELETE", "/v1/sessions/s")
        assert status == 200
        ended = await socket.read()
        assert isinstance(ended, dict)
        assert (ended["type"], ended["code"], ended["last"]) == ("watch_ended", "deleted", 6)
        assert (await socket.ask("watch", session="s", after=6))["code"] == "session_not_found"
        socket.send(type="start", session="s", text="x")
        assert ids(await socket.until("done")) == [1, 2, 3, 4, 5, 6]


@asynchronous
async def test_a_server_that_stops_gives_the_turns_end_then_closes_with_the_last_id(hub: HubProcess) -> None:
    async with page(hub).socket() as socket:
        turn = await start(hub, socket)
        turn.say("half")
        async with page(hub).stream("s", "?after=0") as stream:
            await asyncio.to_thread(hub.stop)
            streamed = await stream.rest()
        events = await socket.until("watch_ended")
        closed = await socket.closed()
    assert [event["type"] for event in events] == ["accepted", "delta", "error", "watch_ended"]
    assert events[2]["code"] == "cancelled"
    assert "the server was stopped before the turn was done" in events[2]["message"]
    assert (events[3]["code"], events[3]["last"]) == ("stopping", events[2]["id"])
    assert closed == Closed(1001, f"stopping last={events[2]['id']}")
    assert streamed == events


@asynchronous
async def test_events_that_cannot_be_stored_still_come_and_ids_are_not_used_again(hub: HubProcess) -> None:
    async with page(hub).socket() as socket:
        turn = await start(hub, socket)
        turn.say("a")
        await socket.until("delta")
        stored = hub.storage.submit
        hub.storage.submit = lambda h, work, done, failed, **_: failed(FULL)  # type: ignore[method-assign]
        turn.say("b")
        turn.end(TurnEnd("stop", Usage(1, 1)))
        events = await socket.until("done")
        hub.storage.submit = stored  # type: ignore[method-assign]
        assert [event["type"] for event in events] == ["delta", "usage", "done"]
        assert ids(events) == [3, 4, 5]
        hub.turns.script = lambda turn: turn.end()
        socket.send(type="start", session="s", text="again")
        started, accepted, *_ = await socket.until("done")
        assert (started["after"], accepted["id"]) == (5, 6)
