"""``certosa usage`` and ``certosa limit``."""

import argparse
import sys
import time
from typing import Any
from urllib.parse import quote, urlencode

from core.cli.account import connect_api
from core.cli.admin import connect_admin
from core.cli.failure import USAGE, CommandFailed
from core.cli.output import harmless, print_json, print_table
from core.cli.place import configured

_HEAD = ("DAY", "USER", "WHAT", "REQUESTS", "TOKENS IN", "TOKENS OUT", "BYTES", "COST", "")
_NAMES = ("tokens", "requests", "bytes", "cost")


def usage(arguments: argparse.Namespace) -> int:
    """Show what was used."""
    if arguments.day and arguments.since:
        raise CommandFailed("say --day or --since, not both", USAGE)
    query = urlencode({key: value for key in ("day", "since") if (value := getattr(arguments, key))})
    if arguments.since:
        query += "&until=9999-12-31"
    tail = f"?{query}" if query else ""
    if arguments.mine:
        answer = connect_api(arguments).call("GET", f"/v1/usage{tail}")
    else:
        user = f"/users/{quote(arguments.user, safe='')}" if arguments.user else ""
        answer = connect_admin(configured(arguments)).call("GET", f"/v1{user}/usage{tail}")
    if arguments.json:
        print_json(answer)
        return 0
    rows = [_cells(row, answer["currency"]) for row in answer["data"]]
    if rows:
        print_table(_HEAD, rows)
    else:
        print("Nothing was used.", file=sys.stderr)
    if answer["cut"]:
        print("There is more: ask for fewer days, or one user.", file=sys.stderr)
    if "today" in answer:
        print()
        _print_standing(answer["today"])
    return 0


def show_limits(arguments: argparse.Namespace) -> int:
    """Show a user's limits."""
    answer = connect_admin(configured(arguments)).call("GET", _path(arguments.user))
    if arguments.json:
        print_json(answer)
    else:
        _print_standing(answer)
    return 0


def set_limits(arguments: argparse.Namespace) -> int:
    """Give a user limits of their own."""
    body = {level: dict(map(_setting, getattr(arguments, level))) for level in ("soft", "hard")}
    if not any(body.values()):
        raise CommandFailed("name a limit, such as --hard tokens=500000", USAGE)
    answer = connect_admin(configured(arguments)).call("PATCH", _path(arguments.user), body)
    if arguments.json:
        print_json(answer)
    else:
        _print_standing(answer)
    return 0


def _setting(text: str) -> tuple[str, int | str | None]:
    name, equals, value = text.partition("=")
    if not equals or name not in _NAMES:
        raise CommandFailed(f"{text!r} is not NAME=VALUE, with one of {', '.join(_NAMES)}", USAGE)
    if value == "none":
        return name, None
    if name == "cost" or value == "default":
        return name, value
    digits = value.replace("_", "")
    if not (digits.isascii() and digits.isdigit()):
        raise CommandFailed(f"{name}: {value!r} is not a whole number, none or default", USAGE)
    return name, int(digits)


def _path(user: str) -> str:
    return f"/v1/users/{quote(user, safe='')}/limits"


def _cells(row: dict[str, Any], currency: str) -> tuple[str, ...]:
    what = "http.fetch" if row["kind"] == "fetch" else f"{row['provider']}/{row['model']}"
    notes = []
    if row["estimated"]:
        notes.append(f"{row['estimated']} estimated")
    if row["unpriced"]:
        notes.append(
            "no price" if row["unpriced"] == row["requests"] else f"{row['unpriced']} without a price"
        )
    cost = f"{row['cost']} {currency}" if row["cost"] else "-"
    counts = (f"{row[key]:,}" for key in ("requests", "input_tokens", "output_tokens", "bytes"))
    return (row["day"], row["user"], harmless(what), *counts, cost, ", ".join(notes))


def _print_standing(standing: dict[str, Any]) -> None:
    resets = time.strftime("%Y-%m-%d %H:%M", time.localtime(standing["resets_at_s"]))
    print(
        f"{standing['user']} on {standing['day']} ({standing['zone']}); the day ends at {resets} local time."
    )
    own = set(standing["own"])

    def shown(level: str, name: str) -> str:
        value = standing["dimensions"][name][level]
        text = "none" if value is None else value if name == "cost" else f"{value:,}"
        return f"{text}*" if f"{level}.{name}" in own else str(text)

    rows = []
    for name in _NAMES:
        at = standing["dimensions"][name]
        used, held = (at[key] if name == "cost" else f"{at[key]:,}" for key in ("used", "held"))
        label = f"{name} ({standing['currency']})" if name == "cost" else name
        rows.append((label, used, held, shown("soft", name), shown("hard", name)))
    print_table(("LIMIT", "USED", "HELD", "SOFT", "HARD"), rows)
    if own:
        print("* their own, not the configuration's")
