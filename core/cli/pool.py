"""``certosa pool``."""

import argparse
import sys
import time
from typing import Any
from urllib.parse import quote

from core.cli.admin import AdminClient, connect_admin
from core.cli.failure import USAGE, CommandFailed
from core.cli.output import print_json, print_table
from core.cli.place import configured

_CLEAR = "\x1b[H\x1b[2J"
_MIB = 1 << 20


def show(arguments: argparse.Namespace) -> int:
    """The jails as they are; with --watch again and again until Ctrl-C."""
    if arguments.watch and (arguments.json or not sys.stdout.isatty()):
        raise CommandFailed("--watch is for a terminal: leave it out, and ask as often as you like", USAGE)
    client = connect_admin(configured(arguments))
    if arguments.json:
        print_json(client.call("GET", "/v1/pool"))
        return 0
    while arguments.watch:
        pool = client.call("GET", "/v1/pool")
        print(_CLEAR, end="")
        _table(pool, arguments.sort)
        try:
            time.sleep(arguments.watch)
        except KeyboardInterrupt:
            return 0
    _table(client.call("GET", "/v1/pool"), arguments.sort)
    return 0


def evict(arguments: argparse.Namespace) -> int:
    """Have a user's jail go as soon as nothing runs in it."""
    _act(arguments, f"{quote(arguments.user, safe='')}/evict")
    return _done(arguments, f"{arguments.user}'s jail goes as soon as nothing runs in it.")


def kill(arguments: argparse.Namespace) -> int:
    """End a user's jail now."""
    _act(arguments, f"{quote(arguments.user, safe='')}/kill")
    return _done(arguments, f"{arguments.user}'s jail is ended; turns that ran in it have failed.")


def release(arguments: argparse.Namespace) -> int:
    """Start a held jail again."""
    _act(arguments, f"{quote(arguments.user, safe='')}/release")
    return _done(arguments, f"{arguments.user}'s jail is started again when they come.")


def drain(arguments: argparse.Namespace) -> int:
    """Take no new jail and let all go as they become idle."""
    _act(arguments, "drain")
    return _done(arguments, "No jail is started any more. To undo: certosa pool open")


def reopen(arguments: argparse.Namespace) -> int:
    """Undo drain."""
    _act(arguments, "open")
    return _done(arguments, "Jails are started again.")


def _act(arguments: argparse.Namespace, path: str) -> None:
    client: AdminClient = connect_admin(configured(arguments))
    client.call("POST", f"/v1/pool/{path}")


def _done(arguments: argparse.Namespace, text: str) -> int:
    if arguments.json:
        print_json({"ok": True})
    else:
        print(text)
    return 0


def _table(pool: dict[str, Any], sort: str) -> None:
    jails: list[dict[str, Any]] = pool["jails"]
    now = sum(jail["state"] != "queued" for jail in jails)
    waiting = len(jails) - now
    print(
        f"{now} of {pool['max_jails']} jails, {waiting} waiting, {_mib(pool['memory_bytes'])} MiB together,"
        f" {_mib(pool['available_bytes'])} MiB free on this machine"
        + ("; draining: no jail is started" if pool["draining"] else "")
    )
    rows = sorted(jails, key=lambda jail: _key(jail, sort))
    print_table(
        ("USER", "STATE", "AGE", "IDLE", "MEMORY", "CPU", "USES", "START"),
        [
            (
                jail["user"],
                jail["state"],
                _span(jail["age_s"]),
                _span(_idle_s(jail)) if jail["state"] == "idle" else "-",
                "-" if jail["memory_bytes"] is None else f"{jail['memory_bytes'] / _MIB:.1f} MiB",
                f"{jail['cpu_s']:.1f} s",
                str(jail["uses"]),
                f"{jail['start_s'] * 1_000:.0f} ms" if jail["start_s"] else "-",
            )
            for jail in rows
        ],
    )
    _held(pool["held"])


def _held(held: list[dict[str, Any]]) -> None:
    if held:
        print("Held, as they died at once (certosa pool release USER):")
        print_table(
            ("USER", "DEATHS", "FOR", "REASON"),
            [(one["user"], str(one["deaths"]), _span(one["for_s"]), one["reason"]) for one in held],
        )


def _key(jail: dict[str, Any], sort: str) -> tuple[Any, ...]:
    """By name and state in order of the alphabet, by numbers the largest first."""
    match sort:
        case "user" | "state":
            return jail[sort], jail["user"]
        case "idle":
            return -_idle_s(jail), jail["user"]
        case "memory":
            return -(jail["memory_bytes"] or 0), jail["user"]
    return -jail[{"age": "age_s", "cpu": "cpu_s", "uses": "uses"}[sort]], jail["user"]


def _idle_s(jail: dict[str, Any]) -> float:
    return float(jail["in_state_s"]) if jail["state"] == "idle" else 0.0


def _span(seconds: float) -> str:
    whole = int(seconds)
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7_200 else f"{whole // 3_600} h"


def _mib(count: int) -> int:
    return round(count / _MIB)
