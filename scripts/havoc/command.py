"""``scripts/chaos``: a server under load is hurt for some minutes, and everything is accounted for."""

import argparse
import asyncio
import ctypes
import json
import random
import secrets
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from scripts.havoc import remains
from scripts.havoc.acts import Monkey
from scripts.havoc.judging import judge
from scripts.havoc.people import Person, everything
from scripts.havoc.turns import wishes
from scripts.havoc.world import World, world
from tests.fakes.browser import Browser, CutError, RefusedError
from tests.fakes.real_server import processes

_PR_SET_CHILD_SUBREAPER = 36
_PAUSES_S = (0.2, 3.0)
_LOAD_AGENT = 'provider = "builtin"\nmodel = "load"\n'


def main(argv: list[str]) -> int:
    """Run it; returns the exit status."""
    arguments = _parser().parse_args(argv)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    before = set(processes())
    with world() as place:
        found = asyncio.run(_havoc(place, arguments))
        status = place.server.stop()
        if status != 0:
            found["faults"].append(f"the server ended with status {status}")
        found["faults"] += remains.databases(place)
        found["faults"] += remains.left_behind(place, before)
        found["faults"] += _said_wrong(place.server.log_path)
        if found["faults"] and arguments.log is not None:
            arguments.log.write_bytes(place.server.log_path.read_bytes())
    _print(found)
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")
    return 1 if found["faults"] else 0


async def _havoc(place: World, arguments: argparse.Namespace) -> dict[str, Any]:
    rng = random.Random(arguments.seed)
    people = [_person(place, f"p{number}", arguments.seed) for number in range(arguments.people)]
    hog = _person(place, "hog", arguments.seed)
    began_s = time.monotonic()
    end_s = began_s + arguments.minutes * 60
    monkey = Monkey(place, hog, rng, partial(_say, began_s))
    acting = asyncio.create_task(monkey.go_on(end_s, _PAUSES_S))
    async with asyncio.TaskGroup() as group:
        for person in people:
            group.create_task(person.live(acting.done))
        group.create_task(_await(acting))
    _say(began_s, "accounting")
    everybody = [*people, hog]
    faults = [*monkey.faults, *(fault for person in everybody for fault in person.faults)]
    for person in everybody:
        faults += await _account(place, person)
    faults += remains.files(place, everybody)
    faults += await asyncio.to_thread(remains.audit, place)
    return {
        "seed": arguments.seed,
        "minutes": arguments.minutes,
        "people": len(people),
        "acts": dict(monkey.counts),
        "whole_again_s": {name: _spread(took) for name, took in monkey.recoveries_s.items()},
        "turns": _tally(everybody),
        "faults": faults,
    }


async def _await(task: "asyncio.Task[None]") -> None:
    await task


def _person(place: World, name: str, seed: int) -> Person:
    made = place.server.new_user(name)
    made.add_agent("load", _LOAD_AGENT)
    return Person(name, Browser(place.server.url, made.token), wishes(name, random.Random(f"{seed} {name}")))


async def _account(place: World, person: Person) -> list[str]:
    """Whatever is wrong with what a person asked for."""
    faults = []
    ran = remains.marks(place, person.name)
    lossy = {
        line["turn"]
        for event in ("events_not_stored", "turn_end_not_stored")
        for line in place.server.logged(event)
    }
    for turn in person.turns:
        if not turn.id:
            faults += [f"{turn.key}: refused, and ran all the same"] if ran[turn.key] else []
            continue
        try:
            kept, messages = await everything(person, turn)
        except (AssertionError, RefusedError, CutError, OSError, TimeoutError) as error:
            faults.append(f"{turn.key} ({turn.kind}): cannot be read afterwards: {error!r}")
            continue
        faults += judge(turn, kept, messages, ran[turn.key], turn.id in lossy)
    return faults


def _said_wrong(log: Path) -> list[str]:
    """Lines of the server's log that no act explains."""
    text = log.read_text(errors="replace")
    found = [line for line in text.splitlines() if "Traceback" in line or '"exception"' in line]
    return [f"the server's log: {line[:600]}" for line in found[:5]]


def _tally(people: list[Person]) -> dict[str, dict[str, int]]:
    counts: dict[str, Counter[str]] = {}
    for person in people:
        for turn in person.turns:
            counts.setdefault(turn.kind, Counter())[turn.ending] += 1
    return {kind: dict(sorted(found.items())) for kind, found in sorted(counts.items())}


def _spread(took_s: list[float]) -> dict[str, float]:
    return {"median": round(median(took_s), 2), "most": round(max(took_s), 2)}


def _print(found: dict[str, Any]) -> None:
    print(f"seed {found['seed']}, {found['minutes']:g} minutes, {found['people']} people")
    for name, count in sorted(found["acts"].items()):
        spread = found["whole_again_s"][name]
        took = f"whole again after {spread['median']:.2f} s, at most {spread['most']:.2f} s"
        print(f"  {count:4d} x {name:18} {took}")
    for kind, endings in found["turns"].items():
        print(f"  turns, {kind:6} " + ", ".join(f"{count} {ending}" for ending, count in endings.items()))
    for fault in found["faults"]:
        print(f"FAULT {fault}")
    print("every turn is accounted for, and nothing is left" if not found["faults"] else "NOT well")


def _say(began_s: float, text: str) -> None:
    print(f"{time.monotonic() - began_s:7.1f} s  {text}", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__)
    parser.add_argument("minutes", type=float, metavar="MINUTES", help="how long")
    parser.add_argument(
        "--seed", type=int, default=secrets.randbelow(1 << 32), help="of what is done by chance"
    )
    parser.add_argument("--people", type=int, default=6, help="who ask at once (default 6)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the report as JSON there too")
    parser.add_argument(
        "--log", type=Path, metavar="FILE", help="keep the server's log there where it is not well"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
