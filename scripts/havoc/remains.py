"""What is looked for once it is over: databases, files, processes, mounts, sockets, control groups."""

import os
import re
import sqlite3
import stat
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

from core.cli.failure import CommandFailed
from scripts.havoc.people import Person
from scripts.havoc.turns import written
from scripts.havoc.world import World
from tests.fakes.real_server import processes

_GONE_S = 20.0


def marks(world: World, name: str) -> Counter[str]:
    """How often each turn of a person's has left its mark in their home."""
    journal = world.server.data_dir / "users" / name / "home" / "journal"
    return Counter(journal.read_text().split()) if journal.exists() else Counter()


def files(world: World, people: list[Person]) -> list[str]:
    """Files that are not as somebody wrote them."""
    faults = []
    for person in people:
        home = world.server.data_dir / "users" / person.name / "home"
        path = home / "big.txt"
        if path.exists():
            text = path.read_text()
            if text.strip() not in {written(t.mark).strip() for t in person.turns if t.kind == "write"}:
                faults.append(f"{path}: half-written: {len(text)} characters, {text[:30]!r}...")
        known = {turn.mark for turn in person.turns}
        if strange := [mark for mark in marks(world, person.name) if mark not in known]:
            faults.append(f"{home}/journal: half-written lines: {strange[:3]}")
    return faults


def audit(world: World) -> list[str]:
    """What the server finds wrong with its audit log."""
    try:
        return [
            f"audit log: {fault}" for fault in world.server.admin.call("POST", "/v1/audit/verify")["faults"]
        ]
    except CommandFailed as error:
        return [f"the audit log cannot be verified: {error}"]


def databases(world: World) -> list[str]:
    """Databases of a stopped server that are not whole, or have a turn that is still open."""
    faults = []
    for path in sorted(world.server.data_dir.rglob("*.db")):
        with closing(sqlite3.connect(path)) as db:
            for check in ("integrity_check", "foreign_key_check"):
                found = [row for row in db.execute(f"PRAGMA {check}") if row != ("ok",)]
                faults += [f"{path}: {check}: {row}" for row in found[:3]]
            if path.parent.name == "sealed":
                (left,) = db.execute("SELECT count(*) FROM turns WHERE state = 'started'").fetchone()
                faults += [f"{path}: {left} turns are still open"] if left else []
    return faults


def left_behind(world: World, ours: set[int]) -> list[str]:
    """What a stopped server has left; ``ours`` are the processes that were there before.

    We have to be a subreaper: whatever lost its parent is a child of ours then.
    """
    directory = str(world.server.data_dir)
    deadline_s = time.monotonic() + _GONE_S
    while (found := _running(directory, ours)) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    faults = [f"a process is left: {line}" for line in found]
    mounted = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if directory in line]
    faults += [f"a mount is left: {line}" for line in mounted]
    faults += [
        f"a socket is left: {path}"
        for path in world.server.data_dir.rglob("*")
        if stat.S_ISSOCK(path.lstat().st_mode)
    ]
    bound = [line for line in Path("/proc/net/unix").read_text().splitlines() if directory in line]
    faults += [f"a socket is left: {line}" for line in bound]
    ports = f"{world.server.hub_port:04X}|{world.server.admin_port:04X}"
    listening = re.findall(rf"^ *\d+: [0-9A-F]+:(?:{ports}) \S+ 0A .*$", _tcp(), re.MULTILINE)
    faults += [f"a socket is left: {line}" for line in listening]
    return faults + [f"a control group is left: {path}" for path in world.groups if Path(path).exists()]


def _tcp() -> str:
    return Path("/proc/net/tcp").read_text()


def _running(directory: str, ours: set[int]) -> list[str]:
    """Children of ours that are new, and whatever has the directory on its command line."""
    found = []
    for pid, process in processes().items():
        if pid in ours or pid == os.getpid() or process.state in "ZX":
            continue
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if process.parent == os.getpid() or directory in line:
            found.append(f"{pid} {process.comm} {line[:80]}")
    return found
