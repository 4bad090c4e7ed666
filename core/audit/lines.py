"""A record as a line of the log, and a line as what it says."""

from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from core.audit.records import Record

By = Literal["core", "egress"]


class Line(msgspec.Struct, frozen=True):
    """A line as it is read. ``by`` is who reported it, as egress knows and not as it was told."""

    seq: int
    at: str
    by: str = ""
    kind: str = ""
    outcome: str = ""
    who: str = ""
    user: str = ""
    on: str = ""
    request: str = ""
    detail: str = ""
    count: int = 1
    prev: str = ""
    mac: str = ""


decode_line = msgspec.json.Decoder(Line).decode


def body_of(seq: int, now_s: float, by: By, record: Record) -> dict[str, Any]:
    """What a line says, without its mac; empty fields are left out."""
    at = datetime.fromtimestamp(now_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"seq": seq, "at": at, "by": by, **msgspec.to_builtins(record)}
