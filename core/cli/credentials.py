"""``certosa credential`` and ``certosa key``."""

import argparse
import base64
import getpass
import sys
import time
from typing import Any, Protocol
from urllib.parse import quote

from core.cli.account import connect_api
from core.cli.admin import connect_admin
from core.cli.failure import USAGE, CommandFailed
from core.cli.output import print_json, print_table
from core.cli.place import configured
from core.vault.box import seal_to

_MAX_VALUE_CHARACTERS = 8_192


class Client(Protocol):
    """A way to the server, as a user or as the operator."""

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any: ...


def set_(arguments: argparse.Namespace) -> int:
    """Keep a credential; the value is sealed before it leaves this process."""
    client, name = _client(arguments), _name(arguments)
    body = _terms(arguments)
    kept = put_sealed(client, name, ask_value(name), body)
    if arguments.json:
        print_json(kept)
    elif name.startswith("provider:"):
        print(f"{name} is kept. It is used from the next chat on, where the server has such a provider.")
    else:
        print(f"{name} is kept, for {body['host']} alone.")
    return 0


def put_sealed(client: Client, name: str, value: str, terms: dict[str, Any]) -> dict[str, Any]:
    """Keep a value that nobody between here and the vault reads. Raises CommandFailed."""
    key = base64.b64decode(client.call("GET", "/v1/credential-key")["key"])
    sealed = base64.b64encode(seal_to(key, name, value)).decode()
    kept: dict[str, Any] = client.call(
        "PUT", f"/v1/credentials/{quote(name, safe='')}", {**terms, "sealed": sealed}
    )
    return kept


def list_all(arguments: argparse.Namespace) -> int:
    """List credentials, never what they say."""
    rows = _client(arguments).call("GET", "/v1/credentials")["data"]
    if arguments.json:
        print_json({"credentials": rows})
        return 0
    print_table(
        ("NAME", "KIND", "GOES TO", "IN", "CREATED", "LAST USED", ""),
        [
            (
                row["name"],
                row["kind"],
                _where(row),
                _place(row),
                _day(row["created_s"]),
                _day(row["used_s"]),
                _state(row),
            )
            for row in rows
        ],
    )
    return 0


def delete(arguments: argparse.Namespace) -> int:
    """Delete a credential."""
    name = _name(arguments)
    answer = _client(arguments).call("DELETE", f"/v1/credentials/{quote(name, safe='')}")
    if arguments.json:
        print_json(answer)
    else:
        print(f"{name} is deleted.")
    return 0


def rotate_key(arguments: argparse.Namespace) -> int:
    """Change the master key of the running server."""
    done = connect_admin(configured(arguments)).call("POST", "/v1/key/rotate", {})
    if arguments.json:
        print_json(done)
    else:
        print(f"The master key is a new one; {done['users']} users and {done['credentials']} credentials")
        print("are wrapped under it. Back up DATA/_keys now: the old key opens nothing any more.")
    return 0


def _client(arguments: argparse.Namespace) -> Client:
    if arguments.operator:
        return connect_admin(configured(arguments))
    return connect_api(arguments)


def _name(arguments: argparse.Namespace) -> str:
    name, provider = arguments.name, arguments.provider
    if bool(name) == bool(provider):
        raise CommandFailed("say either the credential's NAME or --provider NAME", USAGE)
    if arguments.operator and not provider:
        raise CommandFailed("the operator keeps keys of providers alone: say --provider NAME", USAGE)
    return str(name or f"provider:{provider}")


def _terms(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.provider:
        return {}
    if not arguments.host:
        raise CommandFailed("say --host: the only host that the credential is sent to", USAGE)
    if arguments.header and arguments.query:
        raise CommandFailed("say --header or --query, not both", USAGE)
    terms: dict[str, Any] = {"host": arguments.host.lower(), "path": arguments.path}
    if arguments.port:
        terms["port"] = arguments.port
    if arguments.http:
        terms["scheme"] = "http"
    if arguments.username:
        return {**terms, "kind": "basic", "place": "basic", "username": arguments.username}
    if arguments.query:
        return {**terms, "place": "query", "parameter": arguments.query}
    return {**terms, "parameter": arguments.header or "Authorization"}


def ask_value(name: str) -> str:
    """The value, from a prompt that does not show it or from a pipe; never from an argument."""
    if sys.stdin.isatty():
        value = getpass.getpass(f"Value of {name} (it is not shown): ")
    else:
        value = sys.stdin.readline(_MAX_VALUE_CHARACTERS)
    if not (value := value.strip()):
        raise CommandFailed(f"no value for {name}: type it, or send it to standard input", USAGE)
    return value


def _where(row: dict[str, Any]) -> str:
    if not row["host"]:
        return "token requests" if row["name"].startswith("oauth:") else "its provider"
    port = f":{row['port']}" if row["port"] else ""
    return f"{row['scheme']}://{row['host']}{port}{row['path']}"


def _place(row: dict[str, Any]) -> str:
    if not row["host"]:
        return "-"
    if row["place"] == "basic":
        return f"basic, {row['username']}"
    return f"?{row['parameter']}=" if row["place"] == "query" else str(row["parameter"])


def _state(row: dict[str, Any]) -> str:
    if path := row["mounted_at"]:
        return f"in your jail, at {path}"
    grant = row.get("grant")
    if not grant:
        return ""
    if grant["lost"]:
        return f"lost: connect it again with {grant['provider']}"
    return f"with {grant['provider']}"


def _day(seconds: float | None) -> str:
    return "never" if seconds is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
