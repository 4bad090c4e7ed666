"""``certosa agent``."""

import argparse
import sys
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import quote

from core.cli.account import connect_api
from core.cli.failure import USAGE, CommandFailed
from core.cli.output import harmless, print_json, print_table

_MAX_FILE_BYTES = 64 << 10


def list_all(arguments: argparse.Namespace) -> int:
    """List the agents."""
    rows = connect_api(arguments).call("GET", "/v1/agents")["data"]
    if arguments.json:
        print_json({"agents": rows})
    else:
        cells = [
            [row["name"], row.get("provider", "?"), row.get("model", ""), row.get("error", "")]
            for row in rows
        ]
        print_table(["NAME", "PROVIDER", "MODEL", ""], cells)
    return 0


def show(arguments: argparse.Namespace) -> int:
    """Print an agent as turns use it."""
    agent = connect_api(arguments).call("GET", _path(arguments.name))
    if arguments.json:
        print_json(agent)
        return 0
    for key in ("name", "provider", "model", "prompt"):
        print(f"{key}: {harmless(agent[key])}")
    print(f"tools: {', '.join(agent['tools'])}")
    print(f"ask: {', '.join(agent['ask'])}")
    print(f"fallbacks: {harmless(', '.join(agent['fallbacks']))}")
    for key, value in agent["limits"].items():
        print(f"limits.{key}: {value}")
    return 0


def set_(arguments: argparse.Namespace) -> int:
    """Make an agent or change what is named of one; or take a whole file."""
    client = connect_api(arguments)
    body = _from_file(arguments.file) if arguments.file else _own(client, arguments.name)
    for key in ("prompt", "provider", "model"):
        if getattr(arguments, key) is not None:
            body[key] = getattr(arguments, key)
    if arguments.tools is not None:
        body["tools"] = [tool for tool in arguments.tools.split(",") if tool]
    if arguments.ask is not None:
        body["ask"] = [tool for tool in arguments.ask.split(",") if tool]
    if arguments.fallbacks is not None:
        body["fallbacks"] = [at for at in arguments.fallbacks.split(",") if at]
    for limit in arguments.limit or ():
        key, equals, value = limit.partition("=")
        if not equals or not value.isdecimal():
            raise CommandFailed(f"--limit is NAME=NUMBER, not {limit}", USAGE)
        body["limits"] = {**body.get("limits", {}), key: int(value)}
    agent = client.call("PUT", _path(arguments.name), body)
    if arguments.json:
        print_json(agent)
    return 0


def delete(arguments: argparse.Namespace) -> int:
    """Delete an agent's file."""
    answer = connect_api(arguments).call("DELETE", _path(arguments.name))
    if arguments.json:
        print_json(answer)
    return 0


def _own(client: Any, name: str) -> dict[str, Any]:
    """What the agent's file says now; nothing where it has none."""
    if name not in [row["name"] for row in client.call("GET", "/v1/agents")["data"]]:
        return {}
    own: dict[str, Any] = client.call("GET", _path(name))["own"]
    return own


def _from_file(path: str) -> dict[str, Any]:
    try:
        raw = sys.stdin.buffer.read(_MAX_FILE_BYTES + 1) if path == "-" else Path(path).read_bytes()
        if len(raw) > _MAX_FILE_BYTES:
            raise CommandFailed(f"an agent's file has at most {_MAX_FILE_BYTES} bytes", USAGE)
        return tomllib.loads(raw.decode())
    except OSError as error:
        raise CommandFailed(f"{path} cannot be read: {error}", USAGE) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CommandFailed(f"{path} is not TOML: {error}", USAGE) from None


def _path(name: str) -> str:
    return f"/v1/agents/{quote(name, safe='')}"
