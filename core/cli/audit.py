"""``certosa audit``."""

import argparse
import sys
from typing import Any
from urllib.parse import urlencode

from core.cli.admin import connect_admin
from core.cli.failure import FAILED
from core.cli.output import harmless, print_json
from core.cli.place import configured


def show(arguments: argparse.Namespace) -> int:
    """Print lines of the log."""
    filters = {key: getattr(arguments, key) for key in ("user", "kind", "since", "until", "limit")}
    query = urlencode({key: value for key, value in filters.items() if value})
    lines = connect_admin(configured(arguments)).call("GET", f"/v1/audit?{query}")["lines"]
    if arguments.json:
        print_json({"lines": lines})
    elif not lines:
        print("No line matches.", file=sys.stderr)
    else:
        for line in lines:
            print(_sentence(line))
    return 0


def verify(arguments: argparse.Namespace) -> int:
    """Check the whole log; exit code 1 where something is wrong with it."""
    found = connect_admin(configured(arguments)).call("POST", "/v1/audit/verify")
    faults = found["faults"]
    if arguments.json:
        print_json({**found, "ok": not faults})
    elif faults:
        print("The audit log is not as it was written:", file=sys.stderr)
        for fault in faults:
            print(f"  {harmless(fault)}", file=sys.stderr)
    else:
        files = "1 file" if found["files"] == 1 else f"{found['files']:,} files"
        print(f"The audit log is whole: {found['lines']:,} lines in {files}.")
    return FAILED if faults else 0


def _sentence(line: dict[str, Any]) -> str:
    words = [f"#{line['seq']} {line['at']} {line['by']}: {line['kind']} {line['outcome']}"]
    for label, key in (("by", "who"), ("user", "user"), ("on", "on"), ("request", "request")):
        if line[key]:
            words.append(f"{label} {line[key]}")
    if line["count"] > 1:
        words.append(f"{line['count']} times")
    if line["detail"]:
        words.append(f"({line['detail']})")
    return harmless(" ".join(words))
