"""A hundred thousand users who are registered and sleep, beside a server that has three users.

``what`` start: from the program's start to its first answer, in turn with the other; turn: the first token of
a user whose jail is warm, likewise. The floor is the server with three. The sleepers are written into the
databases and directories that they would have; none of them ever spoke.
"""

import os
import secrets
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from scripts.benches._people import Client
from scripts.benches.result import Result, median_and_p99
from tests.fakes.model_server import running_model_server
from tests.fakes.real_server import UNATTACKED, Person, RealServer, real_server

_SLEEPERS = 100_000
_AWAKE = 3
_STARTS = 5
_TURNS = 150
_PAUSE_S = 0.02
_PROBE = 'provider = "fake"\nmodel = "pace-1000-3"\n'


def measure() -> Iterator[Result]:
    """Two lines."""
    with running_model_server() as upstream, _server(upstream.url) as full, _server(upstream.url) as small:
        people = [_people(server) for server in (full, small)]
        full.stop()
        _fill(full)
        small.stop()
        yield _starts(full, small)
        yield _turns(full, small, people)


@contextmanager
def _server(url: str) -> Iterator[RealServer]:
    with real_server({"providers.fake": {"base_url": url}}, before=UNATTACKED) as server:
        yield server


def _people(server: RealServer) -> list[Person]:
    people = [server.new_user(f"awake{number}") for number in range(_AWAKE)]
    for person in people:
        person.add_agent("probe", _PROBE)
    return people


def _starts(full: RealServer, small: RealServer) -> Result:
    took: tuple[list[float], list[float]] = ([], [])
    for number in range(_STARTS):
        for server, found in zip((full, small), took, strict=True):
            began_s = time.monotonic()
            server.start()
            found.append(time.monotonic() - began_s)
            if number < _STARTS - 1:
                server.stop()
    median, p99 = median_and_p99(took[0])
    floor, _ = median_and_p99(took[1])
    varied: dict[str, str | int | float] = {
        "what": "start", "sleeping": _SLEEPERS, "n": _STARTS, "added_s": round(median - floor, 2),
        "least": round(min(took[0]), 3), "floor_least": round(min(took[1]), 3),
        "load": round(os.getloadavg()[0], 1),
    }  # fmt: skip
    return Result("sleeping", varied, median, p99, "s", floor)


def _turns(full: RealServer, small: RealServer, people: list[list[Person]]) -> Result:
    clients = [
        [Client(server.hub_port, "probe", person.token) for person in some]
        for server, some in zip((full, small), people, strict=True)
    ]
    took: tuple[list[float], list[float]] = ([], [])
    try:
        for client in (*clients[0], *clients[1]):
            client.first_token_ms()
        for number in range(_TURNS):
            for some, found in zip(clients, took, strict=True):
                time.sleep(_PAUSE_S)
                found.append(some[number % _AWAKE].first_token_ms())
    finally:
        for client in (*clients[0], *clients[1]):
            client.close()
    median, p99 = median_and_p99(took[0])
    floor, floor_p99 = median_and_p99(took[1])
    varied: dict[str, str | int | float] = {
        "what": "turn", "sleeping": _SLEEPERS, "n": _TURNS, "floor_p99": round(floor_p99, 2),
        "load": round(os.getloadavg()[0], 1),
    }  # fmt: skip
    return Result("sleeping", varied, median, p99, "ms", floor)


def _fill(server: RealServer) -> None:
    """Give a server that is down its sleepers."""
    names = [f"sleeper{number}" for number in range(_SLEEPERS)]
    now_s = int(time.time())
    with _open(server.data_dir / "_system" / "core.db") as db:
        (last,) = db.execute("SELECT max(host_uid) FROM users").fetchone()
        rows = [(name, last + 1 + number, now_s, 0) for number, name in enumerate(names)]
        db.executemany("INSERT INTO users VALUES (?, ?, ?, ?)", rows)
    with _open(server.data_dir / "_keys" / "vault.db") as db:
        salt, key = db.execute("SELECT length(salt), length(data_key) FROM users LIMIT 1").fetchone()
        db.executemany(
            "INSERT INTO users (user, salt, data_key, created_s) VALUES (?, ?, ?, ?)",
            ((name, secrets.token_bytes(salt), secrets.token_bytes(key), now_s) for name in names),
        )
        db.executemany(
            "INSERT INTO tokens (token_id, user, hash, label, created_s) VALUES (?, ?, ?, 'bench', ?)",
            ((secrets.token_hex(8), name, secrets.token_bytes(32), now_s) for name in names),
        )
    _make_homes(server.data_dir / "users", {name: uid for name, uid, _, _ in rows})


def _make_homes(users: Path, uids: dict[str, int]) -> None:
    root = os.geteuid() == 0
    core = (users / "awake0" / "agents").stat().st_uid
    for name, uid in uids.items():
        directory = users / name
        directory.mkdir(0o710 if root else 0o700)
        for part in ("home", "agents"):
            (directory / part).mkdir(0o700)
        if root:
            os.chown(directory, core, uid)
            os.chown(directory / "home", uid, uid)
            os.chown(directory / "agents", core, uid)
            (directory / "agents").chmod(0o750)


@contextmanager
def _open(path: Path) -> Iterator[sqlite3.Connection]:
    """A database for one transaction; its owner stays the owner of all of its files."""
    owner = path.stat()
    with closing(sqlite3.connect(path)) as db:
        with db:
            yield db
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for suffix in ("-wal", "-shm"):
        beside = path.with_name(path.name + suffix)
        if beside.exists():
            os.chown(beside, owner.st_uid, owner.st_gid)
