"""Turns that run while a test does something to the server."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import openai

from tests.fakes.real_server import LIMIT_S, Done, Person, Process, processes, take_chunk, until


class Running:
    """A turn that another thread reads; ``error`` is what the client raised, if it did."""

    def __init__(self, person: Person, text: str, session: str = "", model: str = "assistant") -> None:
        self.done = Done()
        self.error: Exception | None = None
        self._begun = threading.Condition()
        self._headers = {"X-Certosa-Events": "on"} | ({"X-Certosa-Session": session} if session else {})
        self._person, self._text, self._model = person, text, model
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            with self._person.client() as client:
                raw = client.chat.completions.with_raw_response.create(
                    model=self._model, messages=[{"role": "user", "content": self._text}],
                    stream=True, extra_headers=self._headers,
                )  # fmt: skip
                self.done.turn = raw.headers["X-Certosa-Turn"]
                for chunk in raw.parse():
                    with self._begun:
                        take_chunk(self.done, chunk)
                        self._begun.notify_all()
        except Exception as error:
            self.error = error

    def wait_for(self, what: str) -> None:
        """Wait for an event of this type, or for ``text``."""

        def seen() -> bool:
            return bool(self.done.text) if what == "text" else what in {e["type"] for e in self.done.events}

        with self._begun:
            assert self._begun.wait_for(seen, LIMIT_S), self.error

    def wait(self) -> Exception | None:
        """Wait for the turn's end."""
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()
        return self.error

    def __enter__(self) -> "Running":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.wait()


def cancel(person: Person, turn: Running) -> None:
    """End a turn early, as its user does."""
    with person.client() as client:
        client.post(f"/turns/{turn.done.turn}/cancel", cast_to=object)


@contextmanager
def sleeping(person: Person, session: str = "") -> Iterator[tuple[Running, Process]]:
    """A turn whose tool sleeps, and its jail's first process."""
    length = f"600.{uuid4().int % 10**12}"
    with Running(person, f"run: echo begun; sleep {length}", session) as turn:
        turn.wait_for("tool_progress")
        yield turn, until("the sleeping process", lambda: _jail_of(length))


def _jail_of(length: str) -> Process | None:
    known = processes()
    for process in known.values():
        try:
            line = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        except OSError:
            continue
        if process.comm == "sleep" and length.encode() in line:
            while process.inner != 1:
                process = known[process.parent]
            return process
    return None


def code(error: Exception | None) -> Any:
    assert isinstance(error, openai.APIError), error
    return error.code
