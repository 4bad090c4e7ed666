"""``certosa approval``, and the question that ``certosa chat`` puts to whoever sits there."""

import argparse
import contextlib
import select
import sys
import termios
import time
from collections.abc import Callable
from typing import Any, TextIO
from urllib.parse import quote

from core.cli.account import connect_api
from core.cli.api import ApiClient, Piece
from core.cli.output import harmless, print_json, print_table, unhidden

_LOOK_S = 0.2
_SHOWN = 60


def list_all(arguments: argparse.Namespace) -> int:
    """List what waits for the user's answer."""
    rows = connect_api(arguments).call("GET", "/v1/approvals")["data"]
    if arguments.json:
        print_json({"approvals": rows})
    elif rows:
        cells = [
            [
                row["id"],
                time.strftime("%H:%M:%S", time.localtime(row["expires_s"])),
                row["session"] or "",
                row["name"],
                unhidden(row["arguments"][:_SHOWN])
                + ("..." if row["cut"] or len(row["arguments"]) > _SHOWN else ""),
            ]
            for row in rows
        ]
        print_table(["ID", "UNTIL", "SESSION", "WHAT", ""], cells)
    else:
        print("Nothing waits for you.", file=sys.stderr)
    return 0


def _short(row: dict[str, Any]) -> str:
    more = row["cut"] or len(row["arguments"]) > _SHOWN
    return unhidden(row["arguments"][:_SHOWN]) + ("..." if more else "")


def allow(arguments: argparse.Namespace) -> int:
    """Let it act."""
    return _answer(arguments, True)


def refuse(arguments: argparse.Namespace) -> int:
    """Do not."""
    return _answer(arguments, False)


def _answer(arguments: argparse.Namespace, allowed: bool) -> int:
    answer = send(connect_api(arguments), arguments.id, allowed)
    if arguments.json:
        print_json(answer)
    return 0


def send(client: ApiClient, approval: str, allowed: bool) -> dict[str, object]:
    """Answer one. Raises CommandFailed where it is not open."""
    answer: dict[str, object] = client.call(
        "POST", f"/v1/approvals/{quote(approval, safe='')}", {"allow": allowed}
    )
    return answer


def ask_person(
    piece: Piece, given_up: Callable[[], bool], stdin: TextIO = sys.stdin, err: TextIO = sys.stderr
) -> bool | None:
    """Ask at the terminal; None where it is too late, or ``given_up`` says that nobody wants to know.

    Only a plain yes is one. ``stdin`` is a terminal: it gives a line at a time.
    """
    with contextlib.suppress(termios.error, OSError, ValueError):
        # what was typed before the question is no answer to it
        termios.tcflush(stdin.fileno(), termios.TCIFLUSH)
    err.write(f"Allow {harmless(piece.name)}? [y/N] ")
    err.flush()
    while not given_up() and time.time() < piece.expires_s:
        if select.select([stdin], [], [], _LOOK_S)[0]:
            return stdin.readline().strip().lower() in ("y", "yes")
    err.write("\n")
    return None
