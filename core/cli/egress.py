"""``certosa egress``: where agents may send requests. Your own rules by token, a user's as the operator."""

import argparse
import time
from typing import Any, Protocol
from urllib.parse import quote

from core.cli.account import connect_api
from core.cli.admin import connect_admin
from core.cli.failure import USAGE, CommandFailed
from core.cli.output import print_json, print_table
from core.cli.place import configured

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


class _Client(Protocol):
    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any: ...


def list_all(arguments: argparse.Namespace) -> int:
    """List the rules, the operator's too."""
    client, path = _client(arguments)
    answer = client.call("GET", path)
    if arguments.json:
        print_json({"rules": answer["data"], "operator": answer["operator"]})
        return 0
    rows = [(row["id"], *_cells(row), _day(row["created_s"])) for row in answer["data"]]
    rows += [("operator: allow", *_cells(row), "-") for row in answer["operator"]["allow"]]
    rows += [("operator: ceiling", *_cells(row), "-") for row in answer["operator"]["ceiling"]]
    print_table(("RULE", "WHO", "METHODS", "TO", "CREATED"), rows)
    if not rows:
        print("Nothing may be asked for outside.")
    return 0


def allow(arguments: argparse.Namespace) -> int:
    """Add a rule."""
    methods = [method.strip().upper() for method in arguments.methods.split(",") if method.strip()]
    if not methods or not set(methods) <= set(_METHODS):
        raise CommandFailed(f"--methods: a list of {', '.join(_METHODS)}", USAGE)
    body: dict[str, Any] = {"host": arguments.host.lower(), "methods": methods, "path": arguments.path}
    if arguments.port:
        body["port"] = arguments.port
    if arguments.http:
        body["scheme"] = "http"
    if arguments.skill:
        body["origin"] = f"skill:{arguments.skill}"
    client, path = _client(arguments)
    added = client.call("POST", path, body)
    if arguments.json:
        print_json(added)
    else:
        who, how, to = _cells(added)
        print(f"{added['id']}: {who} may send {how} to {to}, where the operator's ceiling has it too.")
    return 0


def remove(arguments: argparse.Namespace) -> int:
    """Remove a rule."""
    client, path = _client(arguments)
    answer = client.call("DELETE", f"{path}/{quote(arguments.rule, safe='')}")
    if arguments.json:
        print_json(answer)
    else:
        print(f"{arguments.rule} is removed.")
    return 0


def _client(arguments: argparse.Namespace) -> tuple[_Client, str]:
    if arguments.user:
        name = quote(arguments.user, safe="")
        return connect_admin(configured(arguments)), f"/v1/users/{name}/egress/rules"
    return connect_api(arguments), "/v1/egress/rules"


def _cells(row: dict[str, Any]) -> tuple[str, str, str]:
    port = f":{row['port']}" if row["port"] else ""
    return row["origin"], ",".join(row["methods"]), f"{row['scheme']}://{row['host']}{port}{row['path']}"


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
