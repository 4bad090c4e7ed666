"""``certosa session``."""

import argparse
import sys
import time
from urllib.parse import quote

from core.cli.account import connect_api
from core.cli.failure import USAGE, CommandFailed
from core.cli.output import harmless, print_json, print_table

_PAGE = 1_000
_WHO = {"system": "system", "user": "you", "assistant": "assistant", "tool": "tool"}


def list_all(arguments: argparse.Namespace) -> int:
    """List the sessions, the latest first."""
    client = connect_api(arguments)
    rows, after = [], ""
    while True:
        answer = client.call("GET", f"/v1/sessions?limit={_PAGE}{after}")
        rows += answer["data"]
        if not answer["next"]:
            break
        after = f"&after={quote(answer['next'])}"
    if arguments.json:
        print_json({"sessions": rows})
    elif rows:
        cells = [[row["id"], _day(row["updated_s"]), str(row["messages"]), row["title"]] for row in rows]
        print_table(["ID", "LAST USED", "MESSAGES", "TITLE"], cells)
    else:
        print("You have no sessions.", file=sys.stderr)
    return 0


def show(arguments: argparse.Namespace) -> int:
    """Print a session's messages."""
    client = connect_api(arguments)
    messages, after = [], 0
    while True:
        answer = client.call("GET", f"{_path(arguments.id)}?limit={_PAGE}&after={after}")
        messages += answer["data"]
        if answer["next"] is None:
            break
        after = answer["next"]
    if arguments.json:
        print_json({**answer, "data": messages, "next": None})
        return 0
    for message in messages:
        print(f"[{message['seq']}] {_WHO.get(message['role'], '?')}: {harmless(message['content'])}")
        for call in message.get("tool_calls", ()):
            named = call["function"]
            print(f"    called {harmless(named['name'])} {harmless(named['arguments'])}")
    return 0


def export(arguments: argparse.Namespace) -> int:
    """Write all of a session to a file or to stdout."""
    client = connect_api(arguments)
    path = f"{_path(arguments.id)}/export?format={arguments.format}"
    if arguments.output is None:
        client.download(path, sys.stdout.buffer)
        return 0
    try:
        with open(arguments.output, "xb") as file:
            client.download(path, file)
    except FileExistsError:
        raise CommandFailed(f"{arguments.output} is there already: choose another name", USAGE) from None
    except OSError as error:
        raise CommandFailed(f"{arguments.output} cannot be written: {error}", USAGE) from None
    return 0


def delete(arguments: argparse.Namespace) -> int:
    """Delete a session."""
    client = connect_api(arguments)
    if not arguments.yes:
        if not sys.stdin.isatty():
            raise CommandFailed("deleting cannot be undone: say --yes", USAGE)
        if input(f"Delete session {harmless(arguments.id)} for good? [y/N] ").strip().lower() != "y":
            return 1
    answer = client.call("DELETE", _path(arguments.id))
    if arguments.json:
        print_json(answer)
    return 0


def _path(session: str) -> str:
    return f"/v1/sessions/{quote(session, safe='')}"


def _day(updated_s: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(updated_s))
