"""``scripts/chaos``, short: a server that is hurt in every way accounts for every turn."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.real_server import ROOT

_CODE = """\
import ctypes, sys
ctypes.CDLL(None).prctl(1, 15)
sys.path.insert(0, sys.argv.pop(1))
from scripts.havoc.command import main
sys.exit(main(sys.argv[1:]))
"""
_LIMIT_S = 400.0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts the small disk")
def test_twenty_seconds_of_chaos_lose_no_turn_and_leave_nothing(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    argv = [sys.executable, "-I", "-c", _CODE, str(ROOT), "0.33", "--people", "3", "--out", str(report)]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except subprocess.TimeoutExpired as error:
        pytest.fail(f"not over after {_LIMIT_S:g} s:\n{(error.stderr or b'')[-6_000:].decode()}")
    assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-2_000:]
    found = json.loads(report.read_text())
    assert found["faults"] == []
    assert sum(found["acts"].values()) >= 2
    assert sum(sum(endings.values()) for endings in found["turns"].values()) >= 3
