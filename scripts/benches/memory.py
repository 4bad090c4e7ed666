"""What a jail takes of memory, over a hundred of them, beside as many bare bwraps that sleep.

``by`` "proportional": the proportional set size of a jail's processes, bwrap included if there.
``by`` "mem_available": what the machine loses for each, the kernel's part and core's thread and state
for its user included; from steps of twenty jails and of a hundred bwraps, so that the median
outlives a neighbour's appetite. Jails are the real server's, each after one turn with the built-in
assistant.
"""

import re
import time
from collections.abc import Iterator
from pathlib import Path

from core.cli.demo_server import demo_server
from scripts.benches._people import add_users, warm_up
from scripts.benches._yard import BenchError, open_yard
from scripts.benches.result import Result, median_and_p99

_JAILS, _STEP = 100, 20
_BARE_STEPS = 4
_SLEEP = ("/usr/bin/sleep", "600")
_AVAILABLE = re.compile(r"^MemAvailable:\s+(\d+) kB$", re.MULTILINE)
_PSS = re.compile(r"^Pss:\s+(\d+) kB$", re.MULTILINE)
_NAMESPACES = re.compile(r"^NSpid:\s+\d+\s+1$", re.MULTILINE)
_LOOKS, _LOOK_S = 5, 0.1
_WAIT_S = 30.0


def measure() -> Iterator[Result]:
    """The floor first, then the server's jails, of either kind."""
    floor_lost, floor_each = _bare()
    for start in ("fork", "exec"):
        lost, each = _jails(start)
        for by, values, floor in (
            ("proportional", each, floor_each),
            ("mem_available", lost, floor_lost),
        ):
            median, p99 = median_and_p99(values)
            varied: dict[str, str | int | float] = {
                "start": start, "by": by, "jails": _JAILS, "after": "one turn", "n": len(values)
            }  # fmt: skip
            yield Result("memory", varied, median, p99, "bytes", median_and_p99(floor)[0])


def _bare() -> tuple[list[float], list[float]]:
    """Lost a bwrap, by steps of a hundred; proportional memory of each of the first (in bytes).

    All stay until the last has started: namespaces that ended give their memory back much later.
    """
    lost: list[float] = []
    with open_yard(_JAILS) as yard:
        pids: list[int] = []
        before = _available()
        for _ in range(_BARE_STEPS):
            pids += [yard.start_bare(number, _SLEEP, lambda: None) for number in range(_JAILS)]
            _wait_until_asleep(pids)
            now = _available()
            lost.append((before - now) / _JAILS)
            before = now
        each = [_proportional(pid) for pid in pids[:_JAILS]]
        yard.end_bare(pids)
    return lost, each


def _jails(start: str) -> tuple[list[float], list[float]]:
    """The same of the server's jails."""
    lost: list[float] = []
    with demo_server(start=start) as server:
        tokens = add_users(server, _JAILS)
        before = _available()
        for at in range(0, _JAILS, _STEP):
            warm_up(server.hub_port, "assistant", tokens[at : at + _STEP])
            now = _available()
            lost.append((before - now) / _STEP)
            before = now
        found = _children(server.pid, "bwrap") if start == "exec" else _first_processes(server.pid)
        if len(found) != _JAILS:
            raise BenchError(f"{len(found)} jails instead of {_JAILS}")
        return lost, [_proportional(pid) for pid in found]


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
        found = _AVAILABLE.search(Path("/proc/meminfo").read_text())
        assert found is not None
        looks.append(float(found[1]) * 1024)
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
    return [
        child for child in _children(pid) if _NAMESPACES.search(Path(f"/proc/{child}/status").read_text())
    ]


def _name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()
