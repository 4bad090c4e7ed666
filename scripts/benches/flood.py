"""Neighbours' first token while jails flood core with frames, beside one that burns as much CPU as it gets.

Two users flood, one burns, four talk: a kind of flood for some seconds, then the burner, in turn. The floor
is the neighbours' median beside the burner; ``frames_per_s`` is what the edge took from a flooder,
``per_round`` what that was in a round of the edge, ``fair`` what the one was given over what the other was.
"""

import itertools
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.request import urlopen

from actors.edge import SHARE
from scripts.benches._hostile import PROGRAMS
from scripts.benches._people import Client
from scripts.benches._yard import BenchError
from scripts.benches.result import Result, median_and_p99
from tests.fakes.hostile_jail import BEFORE, PEER
from tests.fakes.model_server import running_model_server
from tests.fakes.real_server import Person, RealServer, real_server, until

_NEIGHBOURS = 4
_PROBE = 'provider = "fake"\nmodel = "pace-1000-3"\n'
_ENDLESS = 'provider = "fake"\nmodel = "echo"\n[limits]\nwall_s = 3600\n'
_ROUNDS = 5
_TURNS = 24  # in each phase
_PAUSE_S = 0.02
_SETTLE_S = 1.0
_FLOODS = ("requests", "commands", "heavy")
_LIMIT_S = 30.0
_ROUNDS_TOTAL = re.compile(r"^certosa_edge_rounds_total (\S+)$", re.MULTILINE)
_LONG_S = 3_600.0  # by default a flooder's jail is ended after half a minute, and this wants it to go on


def measure() -> Iterator[Result]:
    """One line for each kind of flood."""
    with running_model_server() as upstream:
        sections: dict[str, dict[str, Any]] = {
            "providers.fake": {"base_url": upstream.url},
            "edge": {"patience_s": _LONG_S},
            "agent.limits": {"wall_s": 3_600},
        }
        with real_server(sections, before=BEFORE) as server:
            burner = _hostile(server, "burner", "burn")
            neighbours = [_neighbour(server, number) for number in range(_NEIGHBOURS)]
            try:
                for kind in _FLOODS:
                    yield _beside(server, kind, burner, neighbours)
            finally:
                for client in neighbours:
                    client.close()


def _beside(server: RealServer, kind: str, burner: Person, neighbours: list[Client]) -> Result:
    flooders = [_hostile(server, f"{kind}{number}", kind) for number in range(2)]
    names = [person.name for person in flooders]
    flood_ms: list[float] = []
    control_ms: list[float] = []
    frames = dict.fromkeys(names, 0)
    rounds, seconds = 0, 0.0
    for _ in range(_ROUNDS):
        with _going(flooders):
            before, began_s, began = _frames(server), time.monotonic(), _rounds(server)
            flood_ms += _first_tokens(neighbours)
            after, rounds = _frames(server), rounds + _rounds(server) - began
            seconds += time.monotonic() - began_s
        for name in names:
            frames[name] += after[name] - before[name]
        with _going([burner]):
            control_ms += _first_tokens(neighbours)
    most, least = max(frames.values()), min(frames.values())
    if most > SHARE * rounds:
        raise BenchError(f"{most} frames of one user in {rounds} rounds: more than {SHARE} in each")
    for name in names:
        server.admin.call("POST", f"/v1/pool/{name}/kill")
    floor, floor_p99 = median_and_p99(control_ms)
    median, p99 = median_and_p99(flood_ms)
    varied: dict[str, str | int | float] = {
        "flood": kind,
        "frames_per_s": round(most / seconds),
        "per_round": round(most / rounds, 2),
        "fair": round(least / most, 3) if most else 0.0,
        "floor_p99": round(floor_p99, 2),
        "n": len(flood_ms),
    }
    return Result("flood", varied, median, p99, "ms", floor)


def _hostile(server: RealServer, name: str, program: str) -> Person:
    """A user whose jail runs a program in the worker's place; it has its turn and waits for ``go``."""
    person = server.new_user(name)
    person.add_agent("endless", _ENDLESS)
    person.put("peer.py", PEER + PROGRAMS[program])
    with person.client() as client:
        begin = {"text": "Begin.", "agent": "endless"}
        client.post("/sessions/endless/turns", cast_to=object, body=begin)
    until(f"{name}'s jail", lambda: _frames(server).get(name, 0) > 0)
    return person


def _neighbour(server: RealServer, number: int) -> Client:
    person = server.new_user(f"neighbour{number}")
    person.add_agent("probe", _PROBE)
    client = Client(server.hub_port, "probe", person.token)
    client.first_token_ms()
    return client


@contextmanager
def _going(people: list[Person]) -> Iterator[None]:
    """They do what they do, from a moment ago."""
    try:
        for person in people:
            person.put("go", "")
        time.sleep(_SETTLE_S)
        yield
    finally:
        for person in people:
            (person.home / "go").unlink(missing_ok=True)
        time.sleep(_SETTLE_S)


def _first_tokens(neighbours: list[Client]) -> list[float]:
    found = []
    for client in itertools.islice(itertools.cycle(neighbours), _TURNS):
        time.sleep(_PAUSE_S)
        found.append(client.first_token_ms())
    return found


def _frames(server: RealServer) -> dict[str, int]:
    jails = server.admin.call("GET", "/v1/pool")["jails"]
    return {jail["user"]: int(jail["frames"]) for jail in jails}


def _rounds(server: RealServer) -> int:
    """Rounds of the edge so far."""
    with urlopen(f"http://127.0.0.1:{server.admin_port}/metrics", timeout=_LIMIT_S) as answer:
        found = _ROUNDS_TOTAL.search(answer.read().decode())
    if found is None:
        raise BenchError("the metrics do not have the edge's rounds")
    return int(float(found[1]))
