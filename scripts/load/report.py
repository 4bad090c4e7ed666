"""A load test's report: one page that stands by itself, the results as JSON, the plots as files."""

import json
from pathlib import Path
from typing import Any

import jinja2

from scripts.load.plots import data_url, draw
from scripts.load.results import errors

RESULTS = "results.json"
_PAGE = "report.html"
_TIMES = (
    ("first_token", "first token"),
    ("turn", "whole turn"),
    ("delta", "a token's delay"),
    ("floor", "the same without Certosa"),
    ("delta_added", "added by Certosa"),
)


def write(result: dict[str, Any], directory: Path) -> Path:
    """Write all of it into a directory, made if missing; returns the page's path."""
    directory.mkdir(parents=True, exist_ok=True)
    plots = draw(result)
    for title, _, png in plots:
        (directory / f"{title.lower().replace(' ', '-').replace(chr(39), '')}.png").write_bytes(png)
    (directory / RESULTS).write_text(json.dumps(result, indent=1) + "\n")
    page = directory / _PAGE
    page.write_text(_render(result, [(title, about, data_url(png)) for title, about, png in plots]))
    return page


def _render(result: dict[str, Any], plots: list[tuple[str, str, str]]) -> str:
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters["figure"] = shown
    return environment.get_template("page.html.j2").render(
        result=result,
        people=sum(group["count"] for group in result["groups"]),
        errors=errors(result),
        times=_TIMES,
        processes=list(result["samples"][-1]["processes"]),
        plots=plots,
    )


def shown(value: float | None) -> str:
    """A figure for people: three digits that count, a dash for none."""
    if value is None:
        return "–"
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
