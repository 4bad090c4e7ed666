"""``certosa token``."""

import argparse
import sys
import time
from urllib.parse import quote

from core.cli.admin import connect_admin
from core.cli.failure import USAGE, CommandFailed
from core.cli.output import print_json, print_table
from core.cli.place import configured


def new(arguments: argparse.Namespace) -> int:
    """Make a token. It alone goes to stdout, so that a file or a variable can take it."""
    _check_whose(arguments)
    path = "/v1/admin-tokens" if arguments.admin else f"/v1/users/{quote(arguments.user, safe='')}/tokens"
    made = connect_admin(configured(arguments)).call("POST", path, {"label": arguments.label})
    if arguments.json:
        print_json(made)
        return 0
    print(made["token"], flush=True)
    if sys.stdout.isatty():
        use = "" if arguments.admin else " To use it: export CERTOSA_TOKEN=..."
        print(f"It is shown only this once.{use}", file=sys.stderr)
    return 0


def list_all(arguments: argparse.Namespace) -> int:
    """List tokens by id, user, label and times."""
    if arguments.admin and arguments.user:
        raise CommandFailed("administrators' tokens belong to no user: leave the name out", USAGE)
    of = f"/users/{quote(arguments.user, safe='')}" if arguments.user else ""
    path = "/v1/admin-tokens" if arguments.admin else f"/v1{of}/tokens"
    tokens = connect_admin(configured(arguments)).call("GET", path)["tokens"]
    if arguments.json:
        print_json({"tokens": tokens})
        return 0
    print_table(
        ("ID", "USER", "CREATED", "LAST USED", "LABEL"),
        [
            (
                t["token_id"],
                t["user"] or "-",
                _day(t["created_s"]),
                _day(t.get("last_used_s")),
                t["label"],
            )
            for t in tokens
        ],
    )
    return 0


def revoke(arguments: argparse.Namespace) -> int:
    """Revoke a token."""
    path = f"/v1/tokens/{quote(arguments.token_id, safe='')}"
    connect_admin(configured(arguments)).call("DELETE", path)
    if arguments.json:
        print_json({"ok": True, "token_id": arguments.token_id})
    else:
        print(f"{arguments.token_id} is revoked.")
    return 0


def _check_whose(arguments: argparse.Namespace) -> None:
    if arguments.admin == bool(arguments.user):
        raise CommandFailed("say whose token: a user's name, or --admin and no name", USAGE)


def _day(seconds: float | None) -> str:
    return "never" if seconds is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
