"""The first token of a new turn through the whole server, beside the same upstream called directly.

The user's jail is warm; server, upstream, load and this client are processes of their own, free to go
to any CPU. Alone, and beside 49 other users' streams of 20 tokens a second through the same server
and upstream: the floor is then taken beside them too. ``added_ms`` is the median less the floor,
``added_p99_ms`` the p99 less the floor; ``tokens_per_s`` is what the other streams were given.
"""

import json
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from core.capacity.program import running_module
from core.cli.demo_server import DemoServer, demo_server
from scripts.benches._people import Client, add_users, warm_up
from scripts.benches._yard import BenchError
from scripts.benches.result import Result, median_and_p99

_BESIDE = 49
_RATE = 20
_TURNS = 100
_WARM_UP = 5
_PAUSE_S = 0.03  # at random up to this, so that no sample keeps step with the streams
_PROBE = "pace-1000-3"  # three tokens at 1,000 a second
_LONG = f"pace-{_RATE}-4000"
_CONFIG = """\
[providers.fake]
base_url = "{url}"
[agent]
provider = "fake"
model = "{model}"
"""
_AGENT = """\
provider = "fake"
model = "{model}"
"""


def measure() -> Iterator[Result]:
    """Alone, then beside the streams."""
    with running_module("tests.fakes.model_server", terminate=True) as upstream:
        assert upstream.stdout is not None
        url = upstream.stdout.readline().strip()
        with demo_server(_CONFIG.format(url=url, model=_PROBE)) as server:
            yield from _measure(server, urlsplit(url).port or 0)


def _measure(server: DemoServer, upstream_port: int) -> Iterator[Result]:
    mine, *others = add_users(server, 1 + _BESIDE)
    direct = Client(upstream_port, _PROBE)
    through = Client(server.hub_port, "assistant", mine)
    try:
        for _ in range(_WARM_UP):
            direct.first_token_ms()
            through.first_token_ms()
        yield _result(direct, through, {"streams": 0})
        for number in range(1, 1 + _BESIDE):
            agents = server.data_dir / "users" / f"bench{number}" / "agents"
            (agents / "long.toml").write_text(_AGENT.format(model=_LONG))
        warm_up(server.hub_port, "assistant", others)
        with _streams(server.hub_port, others) as given:
            result = _result(direct, through, {"streams": _BESIDE, "rate_per_s": _RATE})
        result.varied["tokens_per_s"] = round(given["tokens"] / given["seconds"])
        yield result
    finally:
        direct.close()
        through.close()


def _result(direct: Client, through: Client, conditions: dict[str, str | int | float]) -> Result:
    floor_ms: list[float] = []
    took_ms: list[float] = []
    for _ in range(_TURNS):
        for client, found in ((direct, floor_ms), (through, took_ms)):
            time.sleep(random.uniform(0, _PAUSE_S))
            found.append(client.first_token_ms())
    floor, _ = median_and_p99(floor_ms)
    median, p99 = median_and_p99(took_ms)
    varied = {
        **conditions,
        "placement": "free",
        "added_ms": round(median - floor, 2),
        "added_p99_ms": round(p99 - floor, 2),
        "n": _TURNS,
    }
    return Result("first-token", varied, median, p99, "ms", floor)


@contextmanager
def _streams(port: int, users: list[str]) -> Iterator[dict[str, float]]:
    """The load while it runs; what is given is filled at its end."""
    given: dict[str, float] = {}
    with running_module("scripts.benches._streams", str(port), "long") as load:
        assert load.stdin is not None
        assert load.stdout is not None
        load.stdin.write(json.dumps(users) + "\n")
        load.stdin.flush()
        if load.stdout.readline() != "running\n":
            raise BenchError("the streams did not start; what they said is above")
        yield given
        load.stdin.close()
        given.update(json.loads(load.stdout.readline()))
