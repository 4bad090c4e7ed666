"""``certosa user``."""

import argparse
import sys
from urllib.parse import quote

from core.cli.admin import AdminClient, connect_admin
from core.cli.failure import USAGE, CommandFailed
from core.cli.output import print_json, print_table
from core.cli.place import configured


def add(arguments: argparse.Namespace) -> int:
    """Add a user."""
    connect_admin(configured(arguments)).call("POST", "/v1/users", {"name": arguments.name})
    return _done(arguments, f"{arguments.name} was added. Next: certosa token new {arguments.name}")


def list_all(arguments: argparse.Namespace) -> int:
    """List the users."""
    users = connect_admin(configured(arguments)).call("GET", "/v1/users")["users"]
    if arguments.json:
        print_json({"users": users})
    else:
        print_table(
            ("NAME", "STATE"),
            [(user["name"], "disabled" if user.get("disabled") else "enabled") for user in users],
        )
    return 0


def disable(arguments: argparse.Namespace) -> int:
    """Let a user's tokens no longer open anything."""
    _on_user(arguments, "POST", "/disable")
    return _done(arguments, f"{arguments.name} is disabled. To undo: certosa user enable {arguments.name}")


def enable(arguments: argparse.Namespace) -> int:
    """Undo disable."""
    _on_user(arguments, "POST", "/enable")
    return _done(arguments, f"{arguments.name} is enabled.")


def delete(arguments: argparse.Namespace) -> int:
    """Delete a user and everything they have stored, after asking."""
    if not arguments.yes:
        _confirm(arguments.name)
    _on_user(arguments, "DELETE", "")
    return _done(arguments, f"{arguments.name} and everything they had stored are deleted.")


def _on_user(arguments: argparse.Namespace, method: str, action: str) -> None:
    client: AdminClient = connect_admin(configured(arguments))
    client.call(method, f"/v1/users/{quote(arguments.name, safe='')}{action}")


def _confirm(name: str) -> None:
    if not sys.stdin.isatty():
        raise CommandFailed(f"deleting {name} cannot be undone: say --yes if you mean it", USAGE)
    print(f"This deletes {name}'s files, sessions and tokens for good.", file=sys.stderr)
    try:
        answer = input(f"Type {name} to go on: ")
    except EOFError:
        answer = ""
    if answer.strip() != name:
        raise CommandFailed(f"{name} was not deleted")


def _done(arguments: argparse.Namespace, sentence: str) -> int:
    if arguments.json:
        print_json({"ok": True, "name": arguments.name})
    else:
        print(sentence)
    return 0
