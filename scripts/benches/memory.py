"""What a jail takes of memory with 1, 50 and 300 alive, idle and after ten turns with tools.

``by`` "proportional": the proportional set size of a jail's processes, bwrap included if there.
``by`` "mem_available": what the machine loses for each, the kernel's part and core's thread and state
for its user included; from steps of jails, so that the median outlives a neighbour's appetite. The floor
is a bare bwrap that sleeps. Jails are the real server's; idle is after the one short turn that starts a jail.
"""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from core.cli.demo_server import demo_server
from core.pool.meminfo import available_bytes
from scripts.benches._people import add_users, take_turns
from scripts.benches._yard import BenchError, open_yard
from scripts.benches.result import Result, median_and_p99

_LEVELS = ((1, 1), (50, 7), (300, 25))  # alive, and so many a step to get there
_BARE, _BARE_STEPS = 100, 4
_TURNS = (
    "Hello.", "write notes.txt: Buy milk, and see to the roof.", "read notes.txt", "list files",
    "run: uname -a", "write list.txt: one two three", "run: cat list.txt notes.txt", "read list.txt",
    "run: ls -l", "run: wc -c notes.txt",
)  # fmt: skip
_KEEP_ALL = "[pool]\nidle_s = 7200\n"
_SLEEP = ("/usr/bin/sleep", "600")
_PSS = re.compile(r"^Pss:\s+(\d+) kB$", re.MULTILINE)
_NAMESPACES = re.compile(r"^NSpid:\s+\d+\s+1$", re.MULTILINE)
_LOOKS, _LOOK_S = 5, 0.1
_WAIT_S = 30.0


def measure() -> Iterator[Result]:
    """The floor first, then the server's jails, of either kind."""
    floor_lost, floor_each = (median_and_p99(floor)[0] for floor in _bare())
    for start in ("fork", "exec"):
        for found in _jails(start):
            for by, values, floor in (
                ("proportional", found.each, floor_each),
                ("mem_available", found.lost, floor_lost),
            ):
                median, p99 = median_and_p99(values)
                varied: dict[str, str | int | float] = {
                    "start": start, "alive": found.alive, "after": found.after, "by": by, "n": len(values)
                }  # fmt: skip
                yield Result("memory", varied, median, p99, "bytes", floor)


class _Found(NamedTuple):
    """Of the jails that brought it to ``alive``: lost a jail, by steps; proportional memory of each."""

    alive: int
    after: str
    lost: list[float]
    each: list[float]


def _bare() -> tuple[list[float], list[float]]:
    """Lost a bwrap, by steps of a hundred; proportional memory of each of the first (in bytes).

    All stay until the last has started: namespaces that ended give their memory back much later.
    """
    lost: list[float] = []
    with open_yard(_BARE) as yard:
        pids: list[int] = []
        before = _available()
        for _ in range(_BARE_STEPS):
            pids += [yard.start_bare(number, _SLEEP, lambda: None) for number in range(_BARE)]
            _wait_until_asleep(pids)
            now = _available()
            lost.append((before - now) / _BARE)
            before = now
        each = [_proportional(pid) for pid in pids[:_BARE]]
        yard.end_bare(pids)
    return lost, each


def _jails(start: str) -> Iterator[_Found]:
    """The same of the server's jails, as they come to each level."""
    with demo_server(_KEEP_ALL, start=start) as server:
        tokens = add_users(server, max(alive for alive, _ in _LEVELS))
        known: set[int] = set()
        begin = 0
        for alive, step in _LEVELS:
            steps = [tokens[at : min(at + step, alive)] for at in range(begin, alive, step)]
            lost = [_lost_to(server.hub_port, some, _TURNS[:1]) for some in steps]
            fresh = [pid for pid in _workers(server.pid, start, alive) if pid not in known]
            yield _Found(alive, "one turn", lost, [_proportional(pid) for pid in fresh])
            more = [_lost_to(server.hub_port, some, _TURNS) for some in steps]
            both = [one + ten for one, ten in zip(lost, more, strict=True)]
            yield _Found(alive, "ten turns", both, [_proportional(pid) for pid in fresh])
            known.update(fresh)
            begin = alive


def _lost_to(port: int, tokens: list[str], texts: tuple[str, ...]) -> float:
    """What the machine loses for each of some users by these turns (in bytes)."""
    before = _available()
    take_turns(port, "assistant", tokens, texts)
    return (before - _available()) / len(tokens)


def _workers(pid: int, start: str, expected: int) -> list[int]:
    found = _children(pid, "bwrap") if start == "exec" else _first_processes(pid)
    if len(found) != expected:
        raise BenchError(f"{len(found)} jails instead of {expected}")
    return found


def _proportional(pid: int) -> float:
    """The proportional set size of a process and all below it (in bytes; proc_pid_smaps(5))."""
    try:
        found = _PSS.search(Path(f"/proc/{pid}/smaps_rollup").read_text())
    except PermissionError:
        raise BenchError("a jail's memory cannot be read: run this as root") from None
    return float(found[1] if found else 0) * 1024 + sum(map(_proportional, _children(pid)))


def _available() -> float:
    """MemAvailable in bytes, the median of some looks."""
    looks = []
    for _ in range(_LOOKS):
        time.sleep(_LOOK_S)
        looks.append(float(available_bytes()))
    return median_and_p99(looks)[0]


def _wait_until_asleep(pids: list[int]) -> None:
    """Wait until each bwrap has done its work: its command runs."""
    deadline = time.monotonic() + _WAIT_S
    while not all(_descends_to(pid, "sleep") for pid in pids):
        if time.monotonic() > deadline:
            raise BenchError("not all bare bwraps got to their command")
        time.sleep(_LOOK_S)


def _descends_to(pid: int, name: str) -> bool:
    children = _children(pid)
    return bool(children) and all(_name(c) == name or _descends_to(c, name) for c in children)


def _children(pid: int, name: str = "") -> list[int]:
    """Pids of a process's children, those of a name only if one is given."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split() if name in ("", _name(int(child)))]


def _first_processes(pid: int) -> list[int]:
    """Children that are pid 1 of a pid namespace of their own: forked workers."""
    return [child for child in _children(pid) if _NAMESPACES.search(_said(child, "status"))]


def _name(pid: int) -> str:
    return _said(pid, "comm").strip()


def _said(pid: int, file: str) -> str:
    """Of a process in /proc; "" for one that has just ended, as the one that measures jails often has."""
    try:
        return Path(f"/proc/{pid}/{file}").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
