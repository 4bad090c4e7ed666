import io
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.cli import main
from tests.fakes.http_server import Answer, Seen, closed_port, events, http_server, json_answer

TURN = "turn_0123456789abcdef"


def delta(text: str) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}


def event(**fields: Any) -> dict[str, Any]:
    return {"choices": [], "certosa": fields}


END = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def stream(body: bytes, **headers: str) -> Answer:
    return Answer(200, body, {"Content-Type": "text/event-stream", "X-Certosa-Turn": TURN, **headers})


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CERTOSA_TOKEN", "cts_abc")


def chat(respond: Callable[[Seen], Answer], *arguments: str) -> tuple[int, list[Seen]]:
    with http_server(respond) as server:
        status = main(["chat", "--url", server.url, *arguments])
    return status, server.seen


def test_an_answer_streams_to_stdout_and_tools_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    body = events(
        event(type="tool_call", step=1, name="list_files", arguments="{}"),
        event(type="tool_progress", step=1, text="a.txt\n"),
        event(type="tool_result", step=1, ok=True, text="a.txt"),
        event(type="picture", step=2, path="a b.png", media_type="image/png", size=9, caption="A plot"),
        delta("One "),
        delta("file."),
        END,
    )
    status, seen = chat(lambda _: stream(b": keep-alive\n\n" + body), "-m", "list files")
    said = capsys.readouterr()
    assert status == 0
    assert said.out == "One file.\n"
    assert said.err == "> list_files {}\n  | a.txt\n# a b.png  A plot\n"
    assert (seen[0].method, seen[0].path) == ("POST", "/v1/chat/completions")
    assert seen[0].headers["Authorization"] == "Bearer cts_abc"
    assert seen[0].headers["X-Certosa-Events"] == "on"
    assert seen[0].headers["X-Certosa-Session"].startswith("chat-")
    assert seen[0].body["messages"] == [{"role": "user", "content": "list files"}]
    assert seen[0].body["stream"] is True


def test_the_session_and_the_agent_are_the_callers_choice() -> None:
    line = ("-m", "hi", "--session", "work", "--model", "helper")
    _, seen = chat(lambda _: stream(events(delta("x"), END)), *line)
    assert seen[0].headers["X-Certosa-Session"] == "work"
    assert seen[0].body["model"] == "helper"


def test_text_comes_as_it_is_sent_and_not_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    seen_first = threading.Event()

    class Watched(io.StringIO):
        def write(self, text: str) -> int:
            if "first" in text:
                seen_first.set()
            return super().write(text)

    def pieces() -> Iterator[bytes]:
        yield events(delta("first"), end=b"")
        assert seen_first.wait(20)
        yield events(delta(" second"), END)

    out = Watched()
    monkeypatch.setattr(sys, "stdout", out)
    status, _ = chat(lambda _: Answer(200, pieces=pieces), "-m", "hi")
    assert (status, out.getvalue()) == (0, "first second\n")


def test_json_gives_a_program_every_piece(capsys: pytest.CaptureFixture[str]) -> None:
    body = events(event(type="notice", text="old messages were dropped"), delta("x"), END)
    chat(lambda _: stream(body), "-m", "hi", "--json")
    kinds = [json.loads(line)["kind"] for line in capsys.readouterr().out.splitlines()]
    assert kinds == ["notice", "text", "finish"]


def test_the_message_may_come_from_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("Zoë\nzwei\n".encode())))
    _, seen = chat(lambda _: stream(events(delta("x"), END)))
    assert seen[0].body["messages"][0]["content"] == "Zoë\nzwei\n"


@pytest.mark.parametrize("text", [b"", b" \n", b"x" * 900_001])
def test_a_message_that_is_empty_or_too_long_is_not_sent(
    text: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert chat(lambda _: stream(b"")) == (2, [])


def test_the_token_may_come_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CERTOSA_TOKEN")
    (tmp_path / "token").write_text("cts_file\n")
    line = ("-m", "hi", "--token-file", str(tmp_path / "token"))
    _, seen = chat(lambda _: stream(events(delta("x"), END)), *line)
    assert seen[0].headers["Authorization"] == "Bearer cts_file"


@pytest.mark.parametrize("bad", ["", "  ", "two words", "a\r\nX-Evil: 1", "ü"])
def test_a_token_that_is_none_is_refused_before_anything_is_sent(
    bad: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CERTOSA_TOKEN", bad)
    assert chat(lambda _: stream(b""), "-m", "hi") == (2, [])
    assert "token" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["localhost:8700", "ftp://h", "http://", "http://h:99999", "http://[x"])
def test_an_address_that_is_none_is_refused(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", "--url", url, "-m", "hi"]) == 2
    assert url in capsys.readouterr().err


def test_where_no_server_answers_the_code_is_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", "--url", f"http://127.0.0.1:{closed_port()}", "-m", "hi"]) == 3
    assert "certosa serve" in capsys.readouterr().err


def test_a_refusal_is_one_sentence_that_says_when_to_try_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    refusal = json_answer({"error": {"message": "too many turns", "code": "overloaded"}}, 429)
    answer = Answer(429, refusal.body, {"Retry-After": "5"})
    status, _ = chat(lambda _: answer, "-m", "hi")
    assert status == 1
    assert capsys.readouterr().err == "certosa: too many turns (try again in 5 s)\n"


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (events(delta("par"), {"error": {"message": "the model's server stalled"}}), 1, "stalled"),
        (events(delta("par"), end=b""), 3, "before the answer was whole"),
        (b"data: {nonsense\n\n", 1, "no chat completion"),
        (b"data: []\n\n", 1, "no chat completion"),
        (b'data: {"choices": [7]}\n\n', 1, "no chat completion"),
        (b"data: " + b"[" * 100_000 + b"\n\n", 1, "no chat completion"),
    ],
)
def test_a_turn_that_fails_says_how(
    body: bytes, code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _ = chat(lambda _: stream(body), "-m", "hi")
    assert status == code
    assert words in capsys.readouterr().err


def test_ctrl_c_cancels_the_turn_at_the_server_and_shows_its_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cancelled = threading.Event()
    before = signal.getsignal(signal.SIGINT)  # ignored, where the tests were started in the background

    def pieces() -> Iterator[bytes]:
        yield events(delta("It is"), end=b"")
        os.kill(os.getpid(), signal.SIGINT)
        assert cancelled.wait(20)
        yield events({"error": {"message": "cancelled", "code": "cancelled"}}, end=b"")

    def respond(seen: Seen) -> Answer:
        if seen.path == f"/v1/turns/{TURN}/cancel":
            cancelled.set()
            return Answer(202)
        return Answer(200, headers={"X-Certosa-Turn": TURN}, pieces=pieces)

    status, seen = chat(respond, "-m", "hi")
    assert status == 1
    assert cancelled.is_set()
    assert [s.method for s in seen] == ["POST", "POST"]
    assert capsys.readouterr().err == "The answer was cancelled.\n"
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_ctrl_c_leaves_a_turn_that_does_not_end() -> None:
    done = threading.Event()
    asked = threading.Event()

    def pieces() -> Iterator[bytes]:
        yield events(delta("..."), end=b"")
        os.kill(os.getpid(), signal.SIGINT)
        assert asked.wait(20)
        os.kill(os.getpid(), signal.SIGINT)
        done.wait(20)

    def respond(seen: Seen) -> Answer:
        if seen.path.endswith("/cancel"):
            asked.set()
            return Answer(202)
        return Answer(200, headers={"X-Certosa-Turn": TURN}, pieces=pieces)

    with http_server(respond) as server:
        status = main(["chat", "--url", server.url, "-m", "hi"])
        done.set()
    assert status == 130
