"""A hundred thousand people who are registered and not there, beside a server with ten.

``what`` start: how long a server takes until it takes a token; turn: the first token of somebody who is
warm, of either server in turn; token: a token made by an operator. The floor is the server with ten. Each
sleeper has a row, a host uid, a data key, a token and a home, and no conversations.
"""

import http.client
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from statistics import median

from core.cli.demo_server import DemoServer, demo_server
from core.config import Config, load_config
from core.serve import owners_of
from core.users import Users
from core.vault.key_source import KeyFile
from core.vault.keyring import Keyring
from core.vault.keys import SALT_BYTES
from core.vault.register import token_entry
from core.vault.store import VaultStore
from core.vault.tokens import TokenBound, make_token
from jail.host.layout import Layout
from scripts.benches._people import Client, add_users
from scripts.benches._yard import BenchError
from scripts.benches.result import Result, median_and_p99

_SLEEPERS, _FEW = 100_000, 10
_STARTS = 5
_TURNS = 200
_TOKENS = 20
_LOOK_S = 0.005
_START_S = 60.0
_CONFIG = """
[pool]
idle_s = 7200
[access]
free_failures = 1000
"""


def measure() -> Iterator[Result]:
    """Three lines."""
    with demo_server(_CONFIG) as full, demo_server(_CONFIG) as small:
        tokens = [add_users(server, _FEW) for server in (full, small)]
        full.stop()
        awake = _register(full, _SLEEPERS)
        _start(full, awake)
        varied: dict[str, str | int | float] = {"registered": _SLEEPERS + _FEW, "floor_registered": _FEW}
        servers = (full, small)
        both = list(zip(servers, tokens, strict=True))
        yield _result(varied, "start", "s", [[_start_s(s, t[0]) for s, t in both] for _ in range(_STARTS)])
        for server, theirs in both:
            _turn_ms(server, theirs[0])  # warm from here on
        yield _result(
            varied, "turn", "ms",
            [[_turn_ms(s, t[0]) for s, t in both] for _ in range(_TURNS)],
        )  # fmt: skip
        yield _result(
            varied, "token", "ms", [[_token_ms(server) for server in servers] for _ in range(_TOKENS)]
        )


def _result(varied: dict[str, str | int | float], what: str, unit: str, samples: list[list[float]]) -> Result:
    many, few = zip(*samples, strict=True)
    middle, p99 = median_and_p99(list(many))
    floor, floor_p99 = median_and_p99(list(few))
    more: dict[str, str | int | float] = {
        **varied, "what": what, "n": len(samples), "floor_p99": round(floor_p99, 3),
        "more": round(middle - median(few), 3), "load": round(os.getloadavg()[0], 1),
    }  # fmt: skip
    return Result("sleepers", more, middle, p99, unit, floor)


def _start_s(server: DemoServer, token: str) -> float:
    if server.stop() != 0:
        raise BenchError("a server did not end in order")
    began_s = time.monotonic()
    _start(server, token)
    return time.monotonic() - began_s


def _start(server: DemoServer, token: str) -> None:
    """Until somebody's token is taken, which is for the vault in egress to do."""
    server.start()
    server.wait_ready()
    deadline_s = time.monotonic() + _START_S
    while (status := _ask(server, token)) != 200:
        if time.monotonic() > deadline_s:
            raise BenchError(f"no token is taken: {status}")
        time.sleep(_LOOK_S)


def _ask(server: DemoServer, token: str) -> int:
    """The status of a request that needs nothing but its token."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.hub_port, timeout=_START_S)) as connection:
        connection.request("GET", "/v1/models", headers={"Authorization": f"Bearer {token}"})
        return connection.getresponse().status


def _turn_ms(server: DemoServer, token: str) -> float:
    client = Client(server.hub_port, "assistant", token)
    try:
        return client.first_token_ms()
    finally:
        client.close()


def _token_ms(server: DemoServer) -> float:
    began_s = time.monotonic()
    made = server.admin.call("POST", "/v1/users/bench0/tokens", {"label": "one more"})
    took_ms = (time.monotonic() - began_s) * 1_000
    server.admin.call("DELETE", f"/v1/tokens/{made['token_id']}")
    return took_ms


# ---- how so many are registered: by the server's own code, a transaction for all -------------------


def _register(server: DemoServer, count: int) -> str:
    """Returns the last one's token."""
    config = load_config(server.config_path)
    names = [f"sleeper{number}" for number in range(count)]
    users, keys = server.data_dir / "_system" / "core.db", server.data_dir / "_keys"
    first = int(_as_owner(users, lambda: str(_add_rows(users, names, config.jail.uid_base))))
    token = _as_owner(keys / "vault.db", lambda: _add_keys(keys, names))
    _make_homes(config, names, first)
    return token


def _as_owner(path: Path, work: Callable[[], str]) -> str:
    """Do it in a child, as whose the file is; returns its answer."""
    info, (end, own) = path.stat(), os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(info.st_gid, info.st_gid, info.st_gid)
                os.setresuid(info.st_uid, info.st_uid, info.st_uid)
            os.write(own, work().encode())
            status = 0
        finally:
            os._exit(status)
    os.close(own)
    with open(end, "rb") as file:
        said = file.read().decode()
    _, status = os.waitpid(pid, 0)
    if status:
        raise BenchError(f"{path}: the sleepers could not be added")
    return said


def _add_rows(path: Path, names: list[str], uid_base: int) -> int:
    """Give each a row and a host uid; returns the first."""
    table = Users(path, uid_base)
    try:
        first = table.add(names[0]).host_uid
    finally:
        table.close()
    rows = [(name, first + number, int(time.time()), 0) for number, name in enumerate(names) if number]
    with closing(sqlite3.connect(path)) as db, db:
        db.executemany("INSERT INTO users VALUES (?, ?, ?, ?)", rows)
    return first


def _add_keys(directory: Path, names: list[str]) -> str:
    """Give each a data key and a token; returns the last one's."""
    path, source = directory / "vault.db", KeyFile(directory / "master.key")
    store = VaultStore(path)
    try:
        keyring = Keyring(store, source, source.load(True), path, time.time)
        with keyring.register.change() as change:
            for name in names:
                salt = os.urandom(SALT_BYTES)
                store.add_user(name, salt, keyring.new_data_key(name, salt), int(time.time()))
                fresh = make_token("user")
                bound = TokenBound("user", fresh.token_id, name, fresh.hash)
                store.add_token(bound, keyring.register.token_mac(bound), "sleeper", int(time.time()))
                change.set(token_entry(bound.at), name)
    finally:
        store.close()
    return fresh.token


def _make_homes(config: Config, names: list[str], first_uid: int) -> None:
    layout = Layout(config.data_dir, owners_of(config))
    for number, name in enumerate(names):
        layout.prepare_user(name, first_uid + number)
