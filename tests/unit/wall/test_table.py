"""The table in docs/security.md says what the tests of the wall found, of every case, and nothing else."""

from typing import Any

import pytest

from tests.wall.cases import CASES
from tests.wall.table import PAGE, put, read_reports, render

REPORT: dict[str, Any] = {"host": "Host 1", "user": "root", "cases": {}}


def _with(**cases: dict[str, str]) -> dict[str, Any]:
    return REPORT | {"cases": {name.replace("_", "-"): starts for name, starts in cases.items()}}


def test_the_page_shows_just_what_is_kept() -> None:
    page = PAGE.read_text()

    assert put(page, render(read_reports())) == page


@pytest.mark.parametrize("user", ["root", "ordinary"])
def test_every_case_was_tried_on_a_kept_host_and_held(user: str) -> None:
    reports = [report for report in read_reports() if report["user"] == user]

    assert [report["host"] for report in reports if report["cases"].keys() == CASES.keys()]
    for report in reports:
        assert report["cases"].keys() <= CASES.keys()
        outcomes = {outcome for starts in report["cases"].values() for outcome in starts.values()}
        assert "failed" not in outcomes
        assert "passed" in outcomes


@pytest.mark.parametrize(
    ("starts", "cell"),
    [
        ({"fork": "passed", "exec": "passed"}, "both"),
        ({"fork": "passed"}, "fork"),
        ({"fork": "passed", "exec": "failed"}, "fork, **exec FAILED**"),
        ({"fork": "skipped: Skipped: root only", "exec": "skipped: Skipped: root only"}, "(1)"),
    ],
)
def test_a_cell_says_with_which_starts_a_case_held(starts: dict[str, str], cell: str) -> None:
    table = render([_with(another_user=starts)])

    (row,) = [line for line in table.splitlines() if "another user's file" in line]
    assert row.endswith(f" | {cell} |")


def test_a_case_without_outcomes_is_said_to_be_not_run_and_a_reason_is_said_once() -> None:
    why = {"fork": "skipped: Skipped: root only"}

    table = render([_with(uids=why, thread=why)])

    assert table.count("**not run**") == len(CASES) - 2
    assert table.count("(1)") == 2
    assert table.endswith("\n1. root only\n")


def test_a_page_without_a_place_for_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match="no place"):
        put("# Security\n", "table")
