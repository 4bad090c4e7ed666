"""What a command does without the server's help, told to a running server for its audit log."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from core.cli.admin import connect_admin
from core.cli.failure import UNREACHABLE, CommandFailed
from core.config import Config

Act = Literal["backup_made", "provider_set", "provider_removed", "oauth_set", "oauth_removed"]


@contextmanager
def recorded(config: Config, kind: Act, on: str = "", detail: str = "") -> Iterator[None]:
    """The block is an act: recorded on disk before it begins, and after it.

    Where no server runs there is no log that could be written, and it is done all the same: a server's
    start records its configuration's digest. Raises CommandFailed where a server runs and cannot record
    it; then it must not be done.
    """
    client = connect_admin(config)
    act = {"kind": kind, "on": on[:256], "detail": detail[:200]}
    try:
        client.call("POST", "/v1/acts", {**act, "outcome": "asked"})
    except CommandFailed as error:
        if error.status != UNREACHABLE:
            raise
        yield
        return
    outcome = "failed"
    try:
        yield
        outcome = "done"
    finally:
        try:
            client.call("POST", "/v1/acts", {**act, "outcome": outcome})
        except CommandFailed as error:
            # what was done stays done; that it was begun is recorded
            print(f"certosa: the audit log could not be told how it ended: {error}", file=sys.stderr)
