"""The command line against a real server, each command a process of its own."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pytest

from core.cli.demo_server import DemoServer, demo_server

ROOT = Path(__file__).parents[3]
CODE = "import sys; sys.path.insert(0, sys.argv.pop(1)); from core.cli import main; sys.exit(main())"
LIMIT_S = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[DemoServer]:
    with demo_server() as running:
        yield running


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-I", "-c", CODE, str(ROOT), *arguments]


def certosa(
    server: DemoServer, *arguments: str, token: str = "", stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command("--data-dir", str(server.data_dir), *arguments),
        env=environment(token), input=stdin, capture_output=True, text=True, timeout=LIMIT_S,
        check=False,
    )  # fmt: skip


def environment(token: str) -> dict[str, str]:
    kept = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    return {**kept, "CERTOSA_TOKEN": token, "LANG": "C.UTF-8", "TERM": "dumb"}


def url(server: DemoServer) -> str:
    return f"http://127.0.0.1:{server.hub_port}"


def answer(server: DemoServer, *arguments: str) -> Any:
    done = certosa(server, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def new_user(server: DemoServer, name: str) -> str:
    answer(server, "user", "add", name)
    token: str = answer(server, "token", "new", name, "--label", "test")["token"]
    return token


def say(server: DemoServer, token: str, text: str, *more: str) -> subprocess.CompletedProcess[str]:
    return certosa(server, "chat", "--url", url(server), "-m", text, *more, token=token)


def test_a_user_is_added_listed_and_deleted(server: DemoServer) -> None:
    new_user(server, "carol")
    assert "carol" in {user["name"] for user in answer(server, "user", "list")["users"]}
    again = certosa(server, "user", "add", "carol")
    assert again.returncode == 1
    assert again.stderr.startswith("certosa: ")
    answer(server, "user", "delete", "carol", "--yes")
    assert "carol" not in {user["name"] for user in answer(server, "user", "list")["users"]}


@pytest.mark.parametrize("name", ["_system", "..", "a/b", "", "Zoë", "x" * 33])
def test_a_name_that_cannot_be_a_user_is_refused(server: DemoServer, name: str) -> None:
    done = certosa(server, "user", "add", name)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def test_a_token_opens_until_it_is_revoked(server: DemoServer) -> None:
    token = new_user(server, "dora")
    assert say(server, token, "help").returncode == 0
    (listed,) = answer(server, "token", "list", "dora")["tokens"]
    assert (listed["user"], listed["label"]) == ("dora", "test")
    assert token not in json.dumps(listed)
    answer(server, "token", "revoke", listed["token_id"])
    refused = say(server, token, "help")
    assert refused.returncode == 1
    assert refused.stdout == ""


def test_a_disabled_user_is_refused_until_enabled(server: DemoServer) -> None:
    token = new_user(server, "emil")
    answer(server, "user", "disable", "emil")
    assert say(server, token, "help").returncode == 1
    answer(server, "user", "enable", "emil")
    assert say(server, token, "help").returncode == 0


def test_chat_shows_the_answer_and_the_tool_that_ran(server: DemoServer) -> None:
    token = new_user(server, "fay")
    done = say(server, token, "run: echo from-the-jail")
    assert done.returncode == 0, done.stderr
    assert "from-the-jail" in done.stdout
    assert '> run_command {"command":"echo from-the-jail"}' in done.stderr
    assert "  | from-the-jail" in done.stderr


def test_a_message_may_come_from_a_pipe(server: DemoServer) -> None:
    token = new_user(server, "gus")
    done = certosa(server, "chat", "--url", url(server), token=token, stdin="list files\n")
    assert done.returncode == 0, done.stderr
    assert "> list_files" in done.stderr


def test_a_session_remembers_and_another_does_not(server: DemoServer) -> None:
    token = new_user(server, "hanna")
    say(server, token, "remember the colour is teal", "--session", "one")
    same = say(server, token, "what do you remember?", "--session", "one")
    other = say(server, token, "what do you remember?", "--session", "two")
    assert "In this session you told me" in same.stdout
    assert "In this session you told me" not in other.stdout


def test_an_agent_that_there_is_not_is_named(server: DemoServer) -> None:
    token = new_user(server, "ivo")
    done = say(server, token, "help", "--model", "nobody")
    assert done.returncode == 1
    assert "nobody" in done.stderr


def test_ctrl_c_ends_the_turn_and_frees_the_session(server: DemoServer) -> None:
    token = new_user(server, "jan")
    line = command("chat", "--url", url(server), "--session", "s", "-m", "run: echo started; sleep 600")
    began_s = time.monotonic()
    with subprocess.Popen(
        line, env=environment(token), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as chat:
        assert chat.stderr is not None
        wait_for(chat.stderr, "> run_command")
        chat.send_signal(signal.SIGINT)
        assert chat.wait(LIMIT_S) == 1
        assert "cancelled" in chat.stderr.read()
    assert time.monotonic() - began_s < LIMIT_S
    again = say(server, token, "help", "--session", "s")
    assert again.returncode == 0, again.stderr


def wait_for(stream: IO[str], text: str) -> None:
    """Read lines until one has the text; the end of the stream is a failure."""
    while line := stream.readline():
        if text in line:
            return
    raise AssertionError(f"{text!r} never came")


class _Typed:
    """A conversation at a terminal of its own."""

    def __init__(self, server: DemoServer, token: str) -> None:
        self._near, far = pty.openpty()
        # setsid makes the terminal the conversation's own, so that Ctrl-C typed there is SIGINT; env, that it
        # is not ignored, as it is where the tests were started in the background
        self.process = subprocess.Popen(
            ["setsid", "--ctty", "env", "--default-signal=INT", *command("chat", "--url", url(server))],
            env=environment(token), stdin=far, stdout=far, stderr=far,
        )  # fmt: skip
        os.close(far)
        self.shown = ""

    def type(self, text: str) -> None:
        os.write(self._near, text.encode())

    def until(self, text: str) -> str:
        """What was shown up to and with the text; each part is taken once."""
        while text not in self.shown:
            assert self._more(LIMIT_S), f"{text!r} never came; shown: {self.shown!r}"
        before, _, self.shown = self.shown.partition(text)
        return before + text

    def interrupt(self, text: str = "") -> None:
        """Ctrl-C until the text is shown, or without one until the conversation has ended.

        More than once where need be: CPython's readline sleeps through a signal that comes between
        the prompt and its wait for a key, since it looks at what was caught only when woken.
        """
        for _ in range(int(LIMIT_S)):
            self.type("\x03")
            while text and self._more(1):
                if text in self.shown:
                    return
            with suppress(subprocess.TimeoutExpired):
                assert self.process.wait(0 if text else 1) is not None
                assert not text, f"it ended instead; shown: {self.shown!r}"
                return
        raise AssertionError(f"{text!r} never came; shown: {self.shown!r}")

    def _more(self, limit_s: float) -> bool:
        """Take what is shown next; False where nothing is in time, or the other side has ended."""
        ready, _, _ = select.select([self._near], [], [], limit_s)
        try:
            data = os.read(self._near, 65_536) if ready else b""
        except OSError:  # EIO: the other side has ended
            data = b""
        self.shown += data.decode(errors="replace")
        return bool(data)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._near)


@contextmanager
def conversation(server: DemoServer, token: str) -> Iterator[_Typed]:
    typed = _Typed(server, token)
    try:
        yield typed
    finally:
        typed.close()


def test_a_person_talks_at_a_terminal_and_leaves_with_quit(server: DemoServer) -> None:
    with conversation(server, new_user(server, "kim")) as typed:
        typed.until("> ")
        typed.type("/help\n")
        typed.until("Ctrl-C   end the answer")
        typed.type("run: printf '\\033]0;owned\\007'; echo done-it\n")
        shown = typed.until("exit status 0]")
        typed.until("> ")
        typed.type("/new\n")
        typed.until("A fresh conversation.")
        typed.type("/quit\n")
        assert typed.process.wait(LIMIT_S) == 0
    assert "\x1b]0;owned" not in shown
    assert "\u241b]0;owned" in shown


def test_ctrl_c_twice_at_the_prompt_leaves(server: DemoServer) -> None:
    with conversation(server, new_user(server, "lea")) as typed:
        typed.until("> ")
        typed.interrupt("Ctrl-C once more to leave.")
        typed.interrupt()
        assert typed.process.returncode == 0
