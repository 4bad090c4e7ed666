"""Approvals at the command line: listed, answered, and put to whoever sits at the chat."""

import json
import os
import pty
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from core.cli import main
from core.cli.api import Piece
from core.cli.approvals import ask_person
from tests.actor.cli.test_chat import END, TURN, delta, event
from tests.fakes.http_server import Answer, Seen, events, http_server, json_answer

LATER_S = int(time.time()) + 600
ROW = {
    "id": "approval_1", "expires_s": LATER_S, "session": "s", "name": "run_command",
    "arguments": '{"command": "ls"}', "cut": False,
}  # fmt: skip
WANTED = event(
    type="approval_wanted", approval="approval_1", kind="tool", name="run_command",
    arguments='{"command": "ls"}', expires_s=LATER_S, step=1,
)  # fmt: skip


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CERTOSA_TOKEN", "cts_abc")


@contextmanager
def terminal() -> Iterator[int]:
    """A terminal in place of stdin and stderr; its other end.

    Within a test alone: between a fixture and its test pytest puts its own in their places.
    """
    ours, theirs = pty.openpty()
    with ExitStack() as stack:
        stack.callback(os.close, ours)
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(sys, "stdin", stack.enter_context(os.fdopen(os.dup(theirs), "r")))
        patch.setattr(sys, "stderr", stack.enter_context(os.fdopen(theirs, "w")))
        yield ours


def read_until(fd: int, wanted: bytes) -> bytes:
    seen = b""
    while wanted not in seen:
        seen += os.read(fd, 4_096)
    return seen


@pytest.mark.parametrize(
    ("line", "allow"), [(b"y\n", True), (b"YES\n", True), (b"\n", False), (b"yep\n", False)]
)
def test_whoever_sits_at_the_chat_is_asked_and_only_a_plain_yes_is_one(line: bytes, allow: bool) -> None:
    answered = threading.Event()

    def pieces() -> Iterator[bytes]:
        yield events(WANTED, end=b"")
        assert answered.wait(20)
        outcome = "allowed" if allow else "refused"
        yield events(
            event(type="approval_resolved", approval="approval_1", outcome=outcome), delta("ok"), END
        )

    def respond(seen: Seen) -> Answer:
        if seen.path.startswith("/v1/approvals/"):
            answered.set()
            return json_answer({"outcome": "x"})
        return Answer(200, headers={"X-Certosa-Turn": TURN}, pieces=pieces)

    def person(fd: int) -> None:
        read_until(fd, b"[y/N]")
        os.write(fd, line)

    with terminal() as fd, http_server(respond) as server:
        thread = threading.Thread(target=person, args=(fd,))
        thread.start()
        assert main(["chat", "--url", server.url, "-m", "hi"]) == 0
        thread.join(20)
        assert not thread.is_alive()
    assert (server.seen[1].method, server.seen[1].path) == ("POST", "/v1/approvals/approval_1")
    assert server.seen[1].body == {"allow": allow}


def test_where_nobody_sits_the_chat_says_how_to_answer_and_waits(capsys: pytest.CaptureFixture[str]) -> None:
    body = events(WANTED, event(type="approval_resolved", approval="approval_1", outcome="refused"), END)
    with http_server(lambda _: Answer(200, body, {"X-Certosa-Turn": TURN})) as server:
        assert main(["chat", "--url", server.url, "-m", "hi"]) == 0
    said = capsys.readouterr().err
    assert said == (
        '? run_command {"command": "ls"}\n'
        "This waits for: certosa approval allow|refuse approval_1\n"
        "  = refused\n"
    )
    assert len(server.seen) == 1


def test_a_program_is_given_what_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    with http_server(lambda _: Answer(200, events(WANTED, END), {"X-Certosa-Turn": TURN})) as server:
        main(["chat", "--url", server.url, "-m", "hi", "--json"])
    piece = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (piece["kind"], piece["approval"], piece["name"]) == (
        "approval_wanted",
        "approval_1",
        "run_command",
    )
    assert (piece["text"], piece["cut"], piece["expires_s"]) == ('{"command": "ls"}', False, LATER_S)


def test_a_question_that_is_too_late_or_given_up_is_not_answered() -> None:
    late = Piece("approval_wanted", "{}", "run_command", approval="a", expires_s=int(time.time()) - 1)
    now = Piece("approval_wanted", "{}", "run_command", approval="a", expires_s=LATER_S)
    with terminal() as fd:
        assert ask_person(late, lambda: False, sys.stdin, sys.stderr) is None
        assert ask_person(now, lambda: True, sys.stdin, sys.stderr) is None
        assert ask_person(now, typing(fd, b"y\n"), sys.stdin, sys.stderr) is True


def typing(fd: int, line: bytes) -> Callable[[], bool]:
    """Types once the question stands there: it is looked whether anybody still wants to know."""
    typed = False

    def look() -> bool:
        nonlocal typed
        if not typed:
            typed = True
            os.write(fd, line)
        return False

    return look


def test_what_was_typed_before_the_question_is_no_answer_to_it() -> None:
    now = Piece("approval_wanted", "{}", "run_command", approval="a", expires_s=LATER_S)
    with terminal() as fd:
        os.write(fd, b"y\ny\n")
        assert ask_person(now, typing(fd, b"n\n"), sys.stdin, sys.stderr) is False


def test_nothing_of_what_is_asked_is_invisible_at_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    hidden = event(
        type="approval_wanted", approval="approval_1", kind="tool", name="run_command", step=1,
        arguments='{"command": "ls\x1b[2J\u200b\u2028\U000e0041; rm -rf ."}', expires_s=LATER_S,
    )  # fmt: skip
    body = events(hidden, END)
    with http_server(lambda _: Answer(200, body, {"X-Certosa-Turn": TURN})) as server:
        main(["chat", "--url", server.url, "-m", "hi"])
    asked = capsys.readouterr().err.splitlines()[0]
    assert asked == '? run_command {"command": "ls\u241b[2J\ufffd\ufffd\ufffd; rm -rf ."}'


def test_they_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with http_server(lambda _: json_answer({"data": [ROW]})) as server:
        assert main(["approval", "list", "--url", server.url]) == 0
        assert "approval_1" in capsys.readouterr().out
        assert main(["approval", "list", "--json", "--url", server.url]) == 0
        assert json.loads(capsys.readouterr().out) == {"approvals": [ROW]}
    with http_server(lambda _: json_answer({"data": []})) as server:
        assert main(["approval", "list", "--url", server.url]) == 0
    assert capsys.readouterr().err == "Nothing waits for you.\n"


@pytest.mark.parametrize(("word", "allow"), [("allow", True), ("refuse", False)])
def test_they_are_answered_by_name(word: str, allow: bool) -> None:
    with http_server(lambda _: json_answer(ROW)) as server:
        assert main(["approval", word, "approval_1", "--url", server.url]) == 0
    assert (server.seen[0].path, server.seen[0].body) == ("/v1/approvals/approval_1", {"allow": allow})


def test_one_that_is_over_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    refusal = json_answer({"error": {"message": "this approval was allowed; nothing was changed"}}, 409)
    with http_server(lambda _: refusal) as server:
        assert main(["approval", "refuse", "approval_1", "--url", server.url]) == 1
    assert capsys.readouterr().err == "certosa: this approval was allowed; nothing was changed\n"
