"""``scripts/loadtest`` from nothing to its report, small."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.real_server import ROOT

_CODE = """\
import sys
sys.path.insert(0, sys.argv.pop(1))
from scripts.load.command import main
sys.exit(main(sys.argv[1:]))
"""
_LIMIT_S = 240.0


def _loadtest(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-I", "-c", _CODE, str(ROOT), *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=_LIMIT_S, check=False)


def test_a_load_test_ends_in_a_report_that_can_be_compared(tmp_path: Path) -> None:
    done = _loadtest(
        "run", "tools", "--users", "3", "--seconds", "12", "--settle", "1", "--out", str(tmp_path / "a")
    )
    # whether a busy machine was quick enough is not what this test is about
    assert done.returncode in (0, 1), done.stderr[-2_000:]
    result = json.loads((tmp_path / "a" / "results.json").read_text())
    assert result["figures"]["errors"] == 0
    assert result["figures"]["turns_per_s"] > 0
    assert result["exceptions"] == []
    assert result["server_exit"] == 0
    assert {"spawner", "core", "egress", "generator"} <= set(result["samples"][0]["processes"])
    assert done.returncode == (0 if all(found["met"] for found in result["objectives"]) else 1)
    page = (tmp_path / "a" / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 6
    assert "turn_p99_ms" in page
    both = _loadtest("compare", str(tmp_path / "a"), str(tmp_path / "a"))
    assert both.returncode == 0
    assert any(line.startswith("turns_per_s") and line.endswith("1.00") for line in both.stdout.splitlines())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "nonsense"), "invalid choice"),
        (("run", "steady", "--users", "1"), "cannot be"),
        (("run", "steady", "--seconds", "5"), "--seconds has to be more"),
        (("compare", "nowhere", "nowhere"), "cannot be read"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_starts(arguments: tuple[str, ...], said: str) -> None:
    done = _loadtest(*arguments)
    assert done.returncode == 2
    assert said in done.stderr
