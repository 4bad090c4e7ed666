"""Clients that leave, that don't read, that come too many; and the hub's own end."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from jail.wire.schema import Delta
from tests.fakes.hub_process import HubProcess
from tests.fakes.plain_client import PlainClient, open_stream, read_to_end, read_until
from tests.fakes.scripted_turns import PlayedTurn, say_hello

WAIT_S = 10.0
CHAT = "/v1/chat/completions"
GOOD: dict[str, Any] = {"model": "assistant", "messages": [{"role": "user", "content": "hi"}]}
STREAM = {**GOOD, "stream": True}
PIECE = "x" * 20_000


def eventually(true: Callable[[], bool]) -> None:
    """For what another thread does by itself and tells nobody."""
    deadline_s = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < deadline_s, "never came true"
        time.sleep(0.01)


@contextlib.contextmanager
def serving(directory: Path, **options: Any) -> Iterator[tuple[HubProcess, PlainClient]]:
    hub = HubProcess(directory, **options)
    try:
        yield hub, PlainClient(hub.url, {"Authorization": "Bearer token-alice"})
    finally:
        hub.close()


def begin(turn: PlayedTurn) -> None:
    turn.say("begin")


def test_a_client_that_leaves_in_mid_stream_ends_its_own_turn(hub: HubProcess) -> None:
    hub.turns.script = begin
    sock = open_stream(hub.address, STREAM)
    read_until(sock, b"begin")
    turn = hub.turns.next()
    assert not turn.cancelled.is_set()
    sock.close()
    turn.wait_cancelled()
    eventually(lambda: hub.server.admission.running == 0)


def test_a_client_that_leaves_before_a_whole_answer_ends_its_own_turn(hub: HubProcess) -> None:
    hub.turns.script = begin
    sock = open_stream(hub.address, GOOD)
    turn = hub.turns.next()
    sock.close()
    turn.wait_cancelled()


def test_a_turn_in_a_kept_session_goes_on_when_its_client_leaves(hub: HubProcess, plain: PlainClient) -> None:
    hub.turns.script = begin
    sock = open_stream(hub.address, STREAM, X_Certosa_Session="diary")
    read_until(sock, b"begin")
    turn = hub.turns.next()
    sock.close()
    hub.turns.script = say_hello
    assert plain.ask("POST", CHAT, GOOD).status == 200  # the hub has long seen it leave
    assert plain.ask("POST", CHAT, GOOD, {"X-Certosa-Session": "diary"}).status == 409
    assert not turn.cancelled.is_set()
    turn.say("to nobody")
    turn.end()
    assert plain.ask("POST", CHAT, GOOD, {"X-Certosa-Session": "diary"}).status == 200


def test_the_turn_of_a_kept_session_can_be_cancelled_by_its_user_alone(
    hub: HubProcess, plain: PlainClient
) -> None:
    hub.turns.script = begin
    sock = open_stream(hub.address, STREAM, X_Certosa_Session="diary")
    read_until(sock, b"begin")
    turn = hub.turns.next()
    path = f"/v1/turns/{turn.spec.turn}/cancel"
    bob = PlainClient(hub.url, {"Authorization": "Bearer token-bob"})
    assert (bob.ask("POST", path).status, turn.cancelled.is_set()) == (404, False)
    assert plain.ask("POST", path).status == 202
    turn.wait_cancelled()
    assert b'"code":"cancelled"' in read_to_end(sock)
    sock.close()


def test_a_client_that_stops_reading_is_closed_and_nobody_else_notices(tmp_path: Path) -> None:
    with serving(tmp_path, stall_s=0.5) as (hub, plain):
        reading, stop = threading.Event(), threading.Event()

        def pour(turn: PlayedTurn) -> None:
            turn.say("begin")
            assert reading.wait(WAIT_S)
            with contextlib.suppress(AssertionError):  # until the turn has been cancelled
                while not stop.is_set():
                    turn.say(PIECE)
                    turn.accepted.acquire(timeout=WAIT_S)

        hub.turns.script = pour
        sock = open_stream(hub.address, STREAM)
        turn = hub.turns.next()
        with contextlib.closing(sock):
            read_until(sock, b"begin")  # from here on the stream has begun, and it reads no more
            hub.turns.script = say_hello
            reading.set()
            assert plain.ask("POST", CHAT, GOOD).json["choices"][0]["message"]["content"] == "Hello alice"
            turn.wait_cancelled()
            assert len(turn.spec.sink._window) < 600  # type: ignore[attr-defined]
            assert b"[DONE]" not in read_to_end(sock)
        stop.set()
        eventually(lambda: hub.server.admission.running == 0)


def test_a_kept_turn_runs_to_its_end_though_its_client_stopped_reading(tmp_path: Path) -> None:
    with serving(tmp_path, stall_s=0.3) as (hub, plain):
        done = threading.Event()

        def pour(turn: PlayedTurn) -> None:
            for _ in range(400):
                turn.say(PIECE)
                assert turn.accepted.acquire(timeout=WAIT_S)
            turn.end()
            done.set()

        hub.turns.script = pour
        sock = open_stream(hub.address, STREAM, X_Certosa_Session="s")
        turn = hub.turns.next()
        assert done.wait(3 * WAIT_S)
        assert not turn.cancelled.is_set()
        sock.close()
        hub.turns.script = say_hello
        assert plain.ask("POST", CHAT, GOOD, {"X-Certosa-Session": "s"}).status == 200


def test_a_slow_reader_gets_everything_and_in_order(hub: HubProcess) -> None:
    def count(turn: PlayedTurn) -> None:
        for number in range(2_000):
            turn.put(Delta(f"{number} "))
        turn.end()

    hub.turns.script = count
    sock = open_stream(hub.address, STREAM)
    found = b""
    while data := sock.recv(997):
        found += data
        if b"[DONE]" in found:
            break
    sock.close()
    text = "".join(piece.split(b'"', 1)[0].decode() for piece in found.split(b'"content":"')[1:])
    # chunked framing may cut anywhere in the bytes, so compare what is left of them
    assert text.split()[0] == "0"
    assert text.split()[-1] == "1999"


def test_a_silent_stream_is_kept_alive(tmp_path: Path) -> None:
    with serving(tmp_path, keep_alive_s=0.05) as (hub, _):
        hub.turns.script = lambda turn: None
        sock = open_stream(hub.address, STREAM)
        turn = hub.turns.next()
        read_until(sock, b": still working\n\n")
        turn.say("at last")
        turn.end()
        assert b"at last" in read_until(sock, b"data: [DONE]")
        sock.close()


def test_more_turns_than_a_user_may_run_are_refused_and_others_go_on(tmp_path: Path) -> None:
    with serving(tmp_path, max_turns_per_user=2) as (hub, plain):
        hub.turns.script = begin
        socks = [open_stream(hub.address, STREAM) for _ in range(2)]
        turns = [hub.turns.next() for _ in range(2)]
        answer = plain.ask("POST", CHAT, GOOD)
        assert (answer.status, answer.error["code"]) == (429, "too_many_turns")
        assert int(answer.headers["retry-after"]) > 0
        hub.turns.script = say_hello
        bob = PlainClient(hub.url, {"Authorization": "Bearer token-bob"})
        assert bob.ask("POST", CHAT, GOOD).status == 200
        turns[0].end()
        assert b"[DONE]" in read_until(socks[0], b"[DONE]")
        assert plain.ask("POST", CHAT, GOOD).status == 200
        assert hub.sample("certosa_turns_refused_total", reason="user_turns") == 1
        for sock in socks:
            sock.close()


def test_more_turns_than_the_server_may_run_are_refused(tmp_path: Path) -> None:
    with serving(tmp_path, max_turns=1) as (hub, _):
        hub.turns.script = begin
        sock = open_stream(hub.address, STREAM)
        hub.turns.next()
        bob = PlainClient(hub.url, {"Authorization": "Bearer token-bob"})
        answer = bob.ask("POST", CHAT, GOOD)
        assert (answer.status, answer.error["code"]) == (429, "overloaded")
        assert int(answer.headers["retry-after"]) > 0
        sock.close()


def test_a_lagging_loop_refuses_new_turns(hub: HubProcess, plain: PlainClient) -> None:
    async def block() -> None:
        hub.server.admission.lag_s = 100.0
        answer = threading.Thread(target=lambda: answers.append(plain.ask("POST", CHAT, GOOD)))
        answer.start()
        threads.append(answer)

    answers: list[Any] = []
    threads: list[threading.Thread] = []
    if hub.server._lag is not None:
        hub.loop.call_soon_threadsafe(hub.server._lag.cancel)
    hub.run(block())
    threads[0].join(WAIT_S)
    assert answers[0].status == 429
    hub.server.admission.lag_s = 0.0
    assert plain.ask("POST", CHAT, GOOD).status == 200


def test_actors_that_cannot_start_a_turn_are_a_clear_error_and_leave_nothing_busy(
    hub: HubProcess, plain: PlainClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("the tree is down")

    monkeypatch.setattr(hub.turns, "start", broken)
    answer = plain.ask("POST", CHAT, GOOD, {"X-Certosa-Session": "s"})
    assert (answer.status, answer.error["code"]) == (500, "internal")
    assert "tree" not in answer.error["message"]
    monkeypatch.undo()
    assert plain.ask("POST", CHAT, GOOD, {"X-Certosa-Session": "s"}).status == 200
    assert hub.server.admission.running == 0


def test_stopping_lets_a_turn_end_within_its_grace_and_takes_no_new_one(
    hub: HubProcess, plain: PlainClient
) -> None:
    hub.turns.script = begin
    sock = open_stream(hub.address, STREAM)
    read_until(sock, b"begin")
    turn = hub.turns.next()
    stopping = threading.Thread(target=hub.stop, args=(WAIT_S,))
    stopping.start()
    eventually(lambda: hub.server.admission.stopping)
    answer = plain.ask("POST", CHAT, GOOD)
    assert (answer.status, answer.error["code"]) == (503, "unavailable")
    assert int(answer.headers["retry-after"]) > 0
    assert plain.ask("GET", "/readyz").status == 503
    assert plain.ask("GET", "/healthz").status == 200
    turn.say("the end")
    turn.end()
    rest = read_to_end(sock)
    assert b"the end" in rest
    assert b"[DONE]" in rest
    stopping.join(WAIT_S)
    assert not stopping.is_alive()
    sock.close()
    with pytest.raises(ConnectionRefusedError):
        plain.ask("GET", "/healthz")


def test_a_turn_longer_than_the_grace_is_cancelled_and_its_client_told(hub: HubProcess) -> None:
    hub.turns.script = begin
    sock = open_stream(hub.address, STREAM)
    read_until(sock, b"begin")
    turn = hub.turns.next()
    hub.stop(0.05)
    assert turn.cancelled.is_set()
    assert b'"code":"cancelled"' in read_to_end(sock)
    sock.close()


def test_the_official_client_closing_its_stream_cancels_the_turn(
    client: Callable[..., openai.OpenAI], hub: HubProcess
) -> None:
    hub.turns.script = begin
    stream = client().chat.completions.create(
        model="assistant", messages=[{"role": "user", "content": "hi"}], stream=True
    )
    assert next(stream).choices[0].delta.content == "begin"
    turn = hub.turns.next()
    stream.close()
    turn.wait_cancelled()
