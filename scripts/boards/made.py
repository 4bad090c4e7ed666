"""The files of grafana/dashboards: what stands in each, made anew."""

import json
import sys
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from scripts.boards.edge import edge
from scripts.boards.overview import overview
from scripts.boards.pool import pool
from scripts.boards.security import security
from scripts.boards.turns import turns

DIRECTORY = Path(__file__).resolve().parents[2] / "grafana" / "dashboards"


def files() -> dict[str, str]:
    """Their text by name: sorted keys, one thing a line, so that a change is a few lines of a diff."""
    made = (overview(), pool(), turns(), edge(), security())
    return {
        f"{str(board.uid).removeprefix('certosa-')}.json": json.dumps(
            board, cls=JSONEncoder, indent=2, sort_keys=True
        )
        + "\n"
        for board in made
    }


def main() -> int:
    """Write them; tells what changed."""
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        path = DIRECTORY / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"written: grafana/dashboards/{name}", file=sys.stderr)
    return 0
