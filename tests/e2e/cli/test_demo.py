"""The demonstration and the doctor, as a person runs them."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

import pytest

ROOT = Path(__file__).parents[3]
CODE = "import sys; sys.path.insert(0, sys.argv.pop(1)); from core.cli import main; sys.exit(main())"
LIMIT_S = 300.0


def start(*arguments: str) -> subprocess.Popen[str]:
    line = [sys.executable, "-I", "-c", CODE, str(ROOT), *arguments]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-I", "-c", CODE, str(ROOT), *arguments]
    return subprocess.run(line, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def left_by(pid: int) -> list[str]:
    """The temporary directories of a demonstration."""
    where = "/var/lib" if os.geteuid() == 0 else tempfile.gettempdir()
    return [name for name in os.listdir(where) if name.startswith(f"certosa-demo-{pid}-")]


@pytest.mark.slow
def test_the_demonstration_shows_two_users_at_work_and_five_ways_refused() -> None:
    with start("demo", "--json") as demo:
        out, err = demo.communicate(timeout=LIMIT_S)
    assert demo.returncode == 0, out + err
    result = json.loads(out)
    assert result["ok"] is True
    assert {turn["user"] for turn in result["turns"]} == {"alice", "bob"}
    assert all(0 < turn["first_token_s"] <= turn["total_s"] for turn in result["turns"])
    assert all(turn["tools"] for turn in result["turns"])
    assert len(result["isolation"]) == 5
    for attempt in result["isolation"]:
        assert attempt["expected"] == "refused"
        assert attempt["got"].startswith("refused (")
        assert attempt["control"] == "allowed"
    assert {jail["user"] for jail in result["jails"]} == {"alice", "bob"}
    assert all(jail["start_s"] > 0 and jail["memory_bytes"] > 0 for jail in result["jails"])
    assert left_by(demo.pid) == []


@pytest.mark.slow
def test_a_demonstration_that_is_ended_early_leaves_nothing_behind() -> None:
    with start("demo") as demo:
        assert demo.stderr is not None
        wait_for(demo.stderr, "alice: write secret.txt")
        assert len(left_by(demo.pid)) == 1
        demo.terminate()
        demo.communicate(timeout=LIMIT_S)
    assert demo.returncode == 130
    assert left_by(demo.pid) == []


def wait_for(stream: IO[str], text: str) -> None:
    """Read lines until one has the text; the end of the stream is a failure."""
    while line := stream.readline():
        if text in line:
            return
    raise AssertionError(f"{text!r} never came")


@pytest.mark.slow
def test_the_doctor_finds_a_jail_that_holds(tmp_path: Path) -> None:
    done = run("doctor", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["ok"] is True


def test_an_unwritable_data_directory_is_one_sentence() -> None:
    done = run("--data-dir", "/proc/nowhere", "serve")
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert "/proc/nowhere" in done.stderr
