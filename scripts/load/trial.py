"""One load test from nothing to its results: server, model server and generator, started and ended."""

import json
import os
import platform
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from core.capacity.measure import model_server
from core.capacity.people import CONFIG, add_person
from core.capacity.program import running_module
from core.cli.demo_server import DemoServer, demo_server
from scripts.load.orders import Orders
from scripts.load.plan import Scenario
from scripts.load.record import WINDOW_S
from scripts.load.results import figures, verdicts
from scripts.load.sampling import sampling

Say = Callable[[str], None]

_SOURCE = Path(__file__).resolve().parents[2]


class TrialFailed(Exception):
    """The test itself could not be done; nothing is said of the server."""


def run(scenario: Scenario, seconds: float, seed: int, say: Say) -> dict[str, Any]:
    """Do a test and return its results, as JSON has them. Raises TrialFailed, CommandFailed."""
    with ExitStack() as held:
        model, port = held.enter_context(model_server())
        server = held.enter_context(demo_server(CONFIG.format(port=port) + scenario.config))
        say(f"{scenario.people} people: making them")
        tokens = _people(server, scenario)
        orders = Orders(
            port=server.hub_port, model_port=port, tokens=tokens, groups=list(scenario.groups),
            seconds=seconds, arrive_s=scenario.arrive_s, seed=seed,
        )  # fmt: skip
        began_s = time.monotonic()
        with running_module("scripts.load.generator") as generator:
            pids = {
                "spawner": server.pid,
                **server.service_pids(),
                "model server": model.pid,
                "generator": generator.pid,
            }
            with sampling(began_s, pids, lambda: server.admin.call("GET", "/v1/pool"), WINDOW_S) as samples:
                found = _generate(generator, orders, say)
        exit_code = server.stop()
    result = {
        "scenario": scenario.name,
        "about": scenario.about,
        "groups": [msgspec.to_builtins(group) for group in scenario.groups],
        "config": scenario.config,
        "seconds": seconds,
        "settle_s": scenario.settle_s,
        "seed": seed,
        "machine": _machine(),
        "windows": found["record"],
        "samples": samples,
        "exceptions": found["exceptions"],
        "server_exit": exit_code,
    }
    result["figures"] = figures(result)
    result["objectives"] = verdicts(scenario, result["figures"])
    return result


def _people(server: DemoServer, scenario: Scenario) -> list[str]:
    everybody = (group for group in scenario.groups for _ in range(group.count))
    return [
        add_person(server, f"load{number}", {group.kind: group.pace})
        for number, group in enumerate(everybody)
    ]


def _generate(generator: "subprocess.Popen[str]", orders: Orders, say: Say) -> dict[str, Any]:
    assert generator.stdin is not None
    assert generator.stdout is not None
    generator.stdin.write(msgspec.json.encode(orders).decode() + "\n")
    generator.stdin.flush()
    for line in generator.stdout:
        found: dict[str, Any] = json.loads(line)
        if "record" in found:
            return found
        say(_progress(found))
    raise TrialFailed("the generator ended before its time; what it said is above")


def _progress(found: dict[str, Any]) -> str:
    def ms(name: str) -> str:
        return "   -" if found[name] is None else f"{found[name]:4.0f}"

    errors = ", ".join(f"{code}: {count}" for code, count in found["errors"].items())
    return (
        f"{found['at_s']:5d} s  {found['people']:4d} people  {found['turns_per_s']:5.1f} turns/s "
        f" {found['tokens_per_s']:6.0f} tokens/s  first token {ms('first_p50_ms')} ms"
        f"  a token's delay {ms('delta_p50_ms')} ms" + (f"  errors: {errors}" if errors else "")
    )


def _machine() -> dict[str, Any]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "memory_bytes": memory,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
        "packages": {name: version(name) for name in ("aiohttp", "pykka", "pyzmq", "msgpack", "locust")},
        "revision": _revision(),
    }


def _revision() -> str:
    """The checkout's commit, if it is one."""
    found = subprocess.run(
        ["git", "-C", str(_SOURCE), "describe", "--always", "--dirty"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return found.stdout.strip() or "unknown"
