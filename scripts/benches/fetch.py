"""``http_fetch`` of 1 KB and of 100 MB by an agent in its jail, beside a direct fetch.

The whole way: worker, edge, core, egress (policy, ledger, audit), a server on loopback, and back, from the
tool's call to its result as the client's stream of events has them. The floor is the same client library,
aiohttp, with a session of its own for each fetch, to the same server. ``mb_per_s`` and ``floor_mb_per_s``
are of medians (1 MB is 10**6 bytes); ``core_grew_mb`` and ``egress_grew_mb`` the most that each process's
own memory (RssAnon, looked at every 10 ms) was above what it was before, which is to be below 8 MB.
"""

import asyncio
import http.client
import json
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp

from core.capacity.program import running_module
from core.cli.demo_server import DemoServer, demo_server
from scripts.benches._people import add_users
from scripts.benches._yard import BenchError
from scripts.benches.files import Place, grown
from scripts.benches.result import Result, median_and_p99
from tests.fakes.model_server import Call, FakeModelServer, Script, running_model_server

_SMALL, _LARGE = 1_024, 100_000_000
_TURNS, _CALLS = 20, 10
_SAMPLES = 5
_WARM_UP = 2
_MB = 1_000_000
_PIECE = 64 << 10
_LIMIT_S = 300.0
_CONFIG = """\
[providers.fake]
base_url = "{url}"
[agent]
provider = "fake"
model = "scripted"
tools = ["http_fetch"]
[egress]
max_request_bytes = 200_000_000
[[egress.allow]]
host = "127.0.0.1"
scheme = "http"
port = {port}
methods = ["GET", "PUT"]
networks = ["127.0.0.1/32"]
"""


def measure() -> Iterator[Result]:
    """1 KB, then 100 MB each way."""
    with running_module("scripts.benches._file_server") as plain, running_model_server() as model:
        assert plain.stdout is not None
        port = int(plain.stdout.readline())
        config = _CONFIG.format(url=model.url, port=port)
        with demo_server(config) as server:
            (token,) = add_users(server, 1)
            turn = _Agent(server, token, model, f"http://127.0.0.1:{port}/file")
            outside = Place(port, "/file")
            try:
                outside.upload(bytes(_SMALL))
                yield _small(turn)
                outside.upload(bytes(_LARGE))
                yield from _large(server, turn)
            finally:
                outside.close()


class _Agent:
    """A user whose model says what to fetch."""

    def __init__(self, server: DemoServer, token: str, model: FakeModelServer, url: str) -> None:
        self._port, self._token, self._model, self.url = server.hub_port, token, model, url

    def turn(self, *calls: dict[str, Any]) -> list[float]:
        """Have these made one after another; how long each took (in seconds)."""
        made = tuple(Call("http_fetch", json.dumps(call), f"c{n}") for n, call in enumerate(calls))
        self._model.say(Script(calls=made), Script(text="Done."))
        body = {"model": "assistant", "stream": True, "messages": [{"role": "user", "content": "Go on."}]}
        headers = {
            "Content-Type": "application/json", "Authorization": f"Bearer {self._token}",
            "X-Certosa-Events": "on",
        }  # fmt: skip
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_LIMIT_S)
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            return _times(connection.getresponse(), len(calls))
        finally:
            connection.close()


def _times(response: http.client.HTTPResponse, count: int) -> list[float]:
    began: dict[str, float] = {}
    took: list[float] = []
    while line := response.readline():
        if not line.startswith(b"data: {"):
            continue
        now_s, event = time.perf_counter(), json.loads(line[6:]).get("certosa") or {}
        if event.get("type") == "tool_call":
            began[event["step"]] = now_s
        elif event.get("type") == "tool_result":
            if not event["ok"]:
                raise BenchError(f"a fetch failed: {event['text'][:300]}")
            took.append(now_s - began[event["step"]])
    if response.status != 200 or len(took) != count:
        raise BenchError(f"status {response.status}, {len(took)} results of {count}")
    return took


def _small(agent: _Agent) -> Result:
    took: list[float] = []
    floor: list[float] = []
    for number in range(_WARM_UP + _TURNS):
        calls = [{"url": f"{agent.url}?n={at}"} for at in range(_CALLS)]
        direct = asyncio.run(_direct(agent.url, _CALLS))
        through = agent.turn(*calls)
        if number >= _WARM_UP:
            took += through
            floor += direct
    median, p99 = median_and_p99([1_000 * one for one in took])
    return Result("fetch", {"bytes": _SMALL, "n": len(took)}, median, p99, "ms",
                  median_and_p99([1_000 * one for one in floor])[0])  # fmt: skip


def _large(server: DemoServer, agent: _Agent) -> Iterator[Result]:
    pids = server.service_pids()
    calls: dict[str, dict[str, Any]] = {
        "download": {"url": agent.url, "save_to": "came.bin"},
        "upload": {"url": agent.url, "method": "PUT", "body_file": "came.bin"},
    }
    for name, call in calls.items():
        agent.turn(call)  # what is loaded late is loaded
        took: list[float] = []
        floor: list[float] = []
        with grown(pids["core"]) as core, grown(pids["egress"]) as egress:
            for _ in range(_SAMPLES):
                floor += asyncio.run(_direct(agent.url, 1, name == "upload"))
                took += agent.turn(call)
        median, p99 = median_and_p99(took)
        least, _ = median_and_p99(floor)
        varied: dict[str, str | int | float] = {
            "transfer": name,
            "mb": _LARGE // _MB,
            "mb_per_s": round(_LARGE / _MB / median, 1),
            "floor_mb_per_s": round(_LARGE / _MB / least, 1),
            "core_grew_mb": round(core[0] / _MB, 2),
            "egress_grew_mb": round(egress[0] / _MB, 2),
            "n": _SAMPLES,
        }
        yield Result("fetch", varied, median, p99, "s", least)


async def _direct(url: str, count: int, upload: bool = False) -> list[float]:
    """What the same client library takes, with a session for each as egress has."""
    took = []
    for _ in range(count):
        began = time.perf_counter()
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session:
            body = _pieces() if upload else None
            async with session.request("PUT" if upload else "GET", url, data=body) as response:
                async for _data in response.content.iter_any():
                    pass
        took.append(time.perf_counter() - began)
    return took


async def _pieces() -> AsyncIterator[bytes]:
    for at in range(0, _LARGE, _PIECE):
        yield bytes(min(_PIECE, _LARGE - at))
