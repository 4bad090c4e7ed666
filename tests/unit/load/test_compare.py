"""Two results beside each other."""

import json
from pathlib import Path
from typing import Any

import pytest

from scripts.load.compare import CannotCompare, load, table


def _result(**figures: float) -> dict[str, Any]:
    return {"scenario": "steady", "groups": [{"kind": "visitor"}], "figures": figures}


def test_figures_stand_beside_each_other_with_their_ratio() -> None:
    a, b = _result(turns_per_s=2.0, errors=0.0), _result(turns_per_s=3.0, errors=1.0)
    assert table(a, b) == [("turns_per_s", "2", "3", "1.50"), ("errors", "0", "1", "–")]


def test_tests_that_did_something_else_are_not_compared() -> None:
    other = _result() | {"scenario": "churn"}
    with pytest.raises(CannotCompare, match="differ in their scenario"):
        table(_result(), other)


def test_results_are_read_from_their_directory(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text(json.dumps(_result(errors=0.0)))
    assert load(tmp_path) == load(tmp_path / "results.json") == _result(errors=0.0)


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_what_is_no_result_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "results.json").write_text(text)
    with pytest.raises(CannotCompare, match=r"results\.json"):
        load(tmp_path)


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(CannotCompare, match=r"nowhere"):
        load(tmp_path / "nowhere")
