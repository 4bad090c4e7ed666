"""The table of docs/security.md, made of the reports in docs/wall.

``scripts/wall`` writes it anew, between its marks.
"""

import json
import sys
from pathlib import Path
from typing import Any

from tests.wall.cases import GROUPS
from tests.wall.outcomes import STARTS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "security.md"
REPORTS = ROOT / "docs" / "wall"
_BEGIN = "<!-- made by scripts/wall from docs/wall/*.json -->\n"
_END = "<!-- end of what scripts/wall makes -->\n"


def read_reports() -> list[dict[str, Any]]:
    """All kept reports, by host, root before the ordinary user."""
    found = [json.loads(path.read_text()) for path in REPORTS.glob("*.json")]
    return sorted(found, key=lambda report: (report["host"], report["user"] != "root"))


def render(reports: list[dict[str, Any]]) -> str:
    """The lists of hosts, the table, and what did not apply, in Markdown."""
    hosts = sorted({report["host"] for report in reports})
    letters = {host: chr(ord("A") + number) for number, host in enumerate(hosts)}
    heads = [f"{letters[report['host']]}, {report['user']}" for report in reports]
    lines = [f"- {letters[host]}: {host}" for host in hosts]
    lines += ["", f"| attempt | stopped by | {' | '.join(heads)} |", "|---|---|" + "---|" * len(heads)]
    notes: dict[str, int] = {}
    for group, cases in GROUPS.items():
        lines.append(f"| **{group}** | |" + " |" * len(heads))
        for name, case in cases.items():
            cells = [_cell(report["cases"].get(name, {}), notes) for report in reports]
            lines.append(f"| {case.attempt} | {case.by} | {' | '.join(cells)} |")
    lines += ["", *(f"{number}. {why}" for why, number in notes.items())]
    return "\n".join(lines).rstrip() + "\n"


def _cell(starts: dict[str, str], notes: dict[str, int]) -> str:
    """ "both", or what of it: the starts with which all tests of a case passed."""
    passed = [start for start in STARTS if starts.get(start) == "passed"]
    failed = [f"**{start} FAILED**" for start in STARTS if starts.get(start) == "failed"]
    if failed or not starts:
        return ", ".join(passed + failed) or "**not run**"
    if passed:
        return "both" if len(passed) == len(STARTS) else passed[0]
    why = min(starts.values()).removeprefix("skipped: ").removeprefix("Skipped: ")
    return f"({notes.setdefault(why, len(notes) + 1)})"


def put(page: str, table: str) -> str:
    """A page with the table in its place; ValueError if there is none."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError("the page has no place for the table")
    return f"{before}{_BEGIN}\n{table}\n{_END}{after}"


def main() -> int:
    """Write the table into the page."""
    PAGE.write_text(put(PAGE.read_text(), render(read_reports())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
