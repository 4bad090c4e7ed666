"""Users of a benchmark's own server, and the upstream that answers them."""

import http.client
import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from core.cli.demo_server import DemoServer
from scripts.benches._yard import BenchError

_LIMIT_S = 120.0


def add_users(server: DemoServer, count: int) -> list[str]:
    """Add ``bench0`` and on; returns a token for each."""
    tokens = []
    for number in range(count):
        server.admin.call("POST", "/v1/users", {"name": f"bench{number}"})
        made = server.admin.call("POST", f"/v1/users/bench{number}/tokens", {"label": "bench"})
        tokens.append(str(made["token"]))
    return tokens


class Client:
    """One connection, kept open, to whatever speaks OpenAI's chat completions.

    Args:
        port: on 127.0.0.1.
        model: what each request names.
        token: the bearer's; none for a bare upstream.
        text: what its user says.
    """

    def __init__(self, port: int, model: str, token: str = "", text: str = "Hello.") -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_LIMIT_S)
        self._headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        self._model = model
        self.ask(text)

    def ask(self, text: str) -> None:
        """What each turn from now on begins with."""
        message = {"role": "user", "content": text}
        self._body = json.dumps({"model": self._model, "stream": True, "messages": [message]}).encode()

    def first_token_ms(self) -> float:
        """Run one turn to its end; the time to its first piece of content (in milliseconds)."""
        began = time.perf_counter()
        first: float | None = None
        self._connection.request("POST", "/v1/chat/completions", self._body, self._headers)
        response = self._connection.getresponse()
        if response.status != 200:
            raise BenchError(f"status {response.status}: {response.read(500)!r}")
        while line := response.readline():
            if first is None and line.startswith(b"data: {"):
                choices = json.loads(line[6:]).get("choices")
                if not choices:
                    raise BenchError(f"a turn without an answer: {line[:300]!r}")
                if choices[0]["delta"].get("content"):
                    first = (time.perf_counter() - began) * 1_000
        if first is None:
            raise BenchError("a turn without a token")
        return first

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def warm_up(port: int, model: str, tokens: list[str]) -> None:
    """Run one turn for everybody, four at a time, so that each has a jail."""
    take_turns(port, model, tokens, ("Hello.",))


def take_turns(port: int, model: str, tokens: list[str], texts: Sequence[str]) -> None:
    """Have everybody say each of these, one after another, four people at a time."""

    def turn(token: str) -> None:
        client = Client(port, model, token)
        try:
            for text in texts:
                client.ask(text)
                client.first_token_ms()
        finally:
            client.close()

    with ThreadPoolExecutor(4) as pool:
        for _ in pool.map(turn, tokens):
            pass
