"""Two load tests beside each other."""

import json
from pathlib import Path
from typing import Any

from scripts.load.report import RESULTS, shown

_FIGURES = (
    "turns_per_s", "tokens_per_s", "errors",
    "first_token_p50_ms", "first_token_p99_ms", "turn_p50_ms", "turn_p99_ms",
    "delta_added_p50_ms", "delta_added_p99_ms", "least_served",
    "cpu_core", "cpu_egress", "cpu_spawner",
    "memory_core", "memory_egress", "memory_spawner", "memory_a_jail",
)  # fmt: skip


class CannotCompare(ValueError):
    """The results aren't there, or are of different tests."""


def load(path: Path) -> dict[str, Any]:
    """The results in a directory or file. Raises CannotCompare."""
    file = path / RESULTS if path.is_dir() else path
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise CannotCompare(f"{file} cannot be read: {error}") from None
    if not isinstance(found, dict) or "figures" not in found:
        raise CannotCompare(f"{file} holds no results of a load test")
    return found


def table(a: dict[str, Any], b: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Figure, A, B, and B as a part of A. Raises CannotCompare for tests that differ in what they did."""
    for key in ("scenario", "groups"):
        if a[key] != b[key]:
            raise CannotCompare(f"the tests differ in their {key}: {a[key]} and {b[key]}")
    rows = []
    for name in _FIGURES:
        one, other = a["figures"].get(name), b["figures"].get(name)
        if one is None and other is None:
            continue
        ratio = f"{other / one:.2f}" if one and other is not None else "–"
        rows.append((name, shown(one), shown(other), ratio))
    return rows
