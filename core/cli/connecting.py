"""``certosa credential connect``: an account elsewhere, by OAuth 2."""

import argparse
import time
from typing import Any
from urllib.parse import quote

from core.cli.account import connect_api
from core.cli.failure import CommandFailed
from core.cli.output import harmless, print_json, print_table

_LOOK_S = 1.0


def connect(arguments: argparse.Namespace) -> int:
    """Say where to go, and wait until it is done; 1 where it comes to nothing."""
    client = connect_api(arguments)
    path = f"/v1/credentials/{quote(arguments.name, safe='')}/connect"
    body: dict[str, Any] = {
        "with": arguments.provider, "host": arguments.host.lower(), "path": arguments.path,
        "scopes": arguments.scope,
    }  # fmt: skip
    if arguments.device:
        body["flow"] = "device"
    begun = client.call("POST", path, body)
    if arguments.no_wait:
        if arguments.json:
            print_json(begun)
        else:
            _say_where(begun)
        return 0
    if not arguments.json:
        _say_where(begun)
        print("Waiting; Ctrl-C leaves, and changes nothing about it.", flush=True)
    until_s = time.monotonic() + begun["expires_in_s"]
    while (told := client.call("GET", path))["status"] == "waiting":
        if time.monotonic() > until_s:
            raise CommandFailed("nobody came back in time: begin again")
        time.sleep(_LOOK_S)
    if told["status"] == "failed":
        raise CommandFailed(f"{arguments.name} was not connected: {harmless(told['message'])}")
    if arguments.json:
        print_json(told)
    else:
        print(f"{arguments.name} is connected with {arguments.provider}.")
    return 0


def providers(arguments: argparse.Namespace) -> int:
    """List what there is to connect with."""
    rows = connect_api(arguments).call("GET", "/v1/oauth")["data"]
    if arguments.json:
        print_json({"providers": rows})
        return 0
    print_table(
        ("NAME", "HOW", "GOES TO", "SCOPES", ""),
        [
            (
                row["name"], ", ".join(row["flows"]) or "-", ", ".join(row["hosts"]),
                " ".join(row["scopes"]) or "-", "" if row["ready"] else "the operator has to set its secret",
            )
            for row in rows
        ],
    )  # fmt: skip
    return 0


def _say_where(begun: dict[str, Any]) -> None:
    minutes = max(1, begun["expires_in_s"] // 60)
    print(f"Open this within {minutes} minutes, in a browser where you are signed in there:")
    print(f"\n  {harmless(begun['url'])}\n")
    if begun["user_code"]:
        print(f"and type in the code  {harmless(begun['user_code'])}")
    print("It is for you alone: whoever follows it connects their account to your agent.")
