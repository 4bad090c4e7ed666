"""Events to one and to 50 clients that watch a session by WebSocket, beside a bare aiohttp WebSocket.

``source`` "log": a turn that has ended is read from its first event on, as after a lost connection.
"live": a turn that runs as fast as its jail, egress and a fake model server can; from its first event
to its last at every client. The floor is as many messages of the same mean size to as many clients.
Figures are microseconds for each event to each client; ``events_per_s`` and ``floor_per_s`` are to all
clients together. All clients are in this process, which takes most of the time of floor and server alike.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import aiohttp

from core.capacity.program import running_module
from core.cli.demo_server import demo_server
from scripts.benches._people import add_users
from scripts.benches._yard import BenchError
from scripts.benches.result import Result, median_and_p99

_CLIENTS = (1, 50)
_SAMPLES = {"log": 9, "live": 5}
_TOKENS = 4_000
_LIMIT_S = 120.0
_US = 1_000_000
_CONFIG = """\
[providers.fake]
base_url = "{url}"
[agent]
provider = "fake"
model = "pace-1000000-{tokens}"
[live]
per_user = 100
"""


@dataclass(frozen=True)
class Place:
    """A server's WebSocket."""

    url: str
    token: str = ""

    @asynccontextmanager
    async def sockets(self, count: int) -> AsyncIterator[list[aiohttp.ClientWebSocketResponse]]:
        """So many connections."""
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        async with AsyncExitStack() as stack:
            http = await stack.enter_async_context(aiohttp.ClientSession(headers=headers))
            opened = [
                await stack.enter_async_context(http.ws_connect(self.url, compress=0)) for _ in range(count)
            ]
            yield opened


def measure() -> Iterator[Result]:
    """The log, then live, each to one client and to 50."""
    with (
        running_module("tests.fakes.model_server", terminate=True) as upstream,
        running_module("scripts.benches._event_server") as plain,
    ):
        assert upstream.stdout is not None
        assert plain.stdout is not None
        config = _CONFIG.format(url=upstream.stdout.readline().strip(), tokens=_TOKENS)
        bare = Place(f"http://127.0.0.1:{int(plain.stdout.readline())}/")
        with demo_server(config) as server:
            (token,) = add_users(server, 1)
            ours = Place(f"http://127.0.0.1:{server.hub_port}/v1/ws", token)
            count, size = asyncio.run(_first_turn(ours))
            for source, samples in _SAMPLES.items():
                for clients in _CLIENTS:
                    yield asyncio.run(_compare(source, clients, samples, ours, bare, (count, size)))


async def _first_turn(ours: Place) -> tuple[int, int]:
    """Start the jail and leave a turn in the session "log"; how many events it has, of what mean size."""
    async with ours.sockets(1) as (socket,):
        await socket.send_json({"type": "start", "session": "log", "text": "go"})
        sizes = await _until_done(socket)
    return len(sizes), sum(sizes) // len(sizes)


async def _compare(
    source: str, clients: int, samples: int, ours: Place, bare: Place, shape: tuple[int, int]
) -> Result:
    took: list[float] = []
    floor: list[float] = []
    count, size = shape
    for number in range(samples):
        floor.append(await _plain(bare, clients, count, size))
        if source == "log":
            took.append(await _logged(ours, clients))
        else:
            took.append(await _live(ours, clients, f"live-{clients}-{number}"))
    median, worst = median_and_p99(took)
    least, _ = median_and_p99(floor)
    return Result(
        "events",
        {
            "source": source,
            "clients": clients,
            "events": count,
            "bytes": size,
            "events_per_s": round(_US / median),
            "floor_per_s": round(_US / least),
            "n": samples,
        },
        median,
        worst,
        "us",
        least,
    )


async def _plain(bare: Place, clients: int, count: int, size: int) -> float:
    async def read(socket: aiohttp.ClientWebSocketResponse) -> None:
        await socket.send_str(f"{count} {size}")
        for _ in range(count):
            await socket.receive_str(timeout=_LIMIT_S)

    async with bare.sockets(clients) as sockets:
        began = time.perf_counter()
        await asyncio.gather(*map(read, sockets))
        return (time.perf_counter() - began) * _US / (count * clients)


async def _logged(ours: Place, clients: int) -> float:
    async def read(socket: aiohttp.ClientWebSocketResponse) -> int:
        await socket.send_json({"type": "watch", "session": "log", "after": 0})
        return len(await _until_done(socket))

    async with ours.sockets(clients) as sockets:
        began = time.perf_counter()
        events = await asyncio.gather(*map(read, sockets))
        return (time.perf_counter() - began) * _US / sum(events)


async def _live(ours: Place, clients: int, session: str) -> float:
    async with ours.sockets(clients) as sockets:
        first, *others = sockets
        await first.send_json({"type": "start", "session": session, "text": "go"})
        first_text = await first.receive_str(timeout=_LIMIT_S)
        if json.loads(first_text)["type"] != "started":
            raise BenchError(f"no turn: {first_text[:300]}")
        began = time.perf_counter()
        for socket in others:
            await socket.send_json({"type": "watch", "session": session, "after": 0})
        events = await asyncio.gather(*map(_until_done, sockets))
        return (time.perf_counter() - began) * _US / sum(map(len, events))


async def _until_done(socket: aiohttp.ClientWebSocketResponse) -> list[int]:
    """Read a turn to its end; the sizes of its events (in bytes)."""
    sizes: list[int] = []
    while True:
        text = await socket.receive_str(timeout=_LIMIT_S)
        if '"type":"done"' in text:
            return [*sizes, len(text)]
        if '"type":"error"' in text or '"type":"refused"' in text or '"type":"watch_ended"' in text:
            raise BenchError(f"a turn without its end: {text[:300]}")
        if '"id":' in text:
            sizes.append(len(text))
