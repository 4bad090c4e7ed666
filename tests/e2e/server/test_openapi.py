"""schemathesis over the whole API of a real server, as a user: no 5xx, and nothing undocumented.

A longer run is the same command with another `--max-time`; CONTRIBUTING.md has it.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.real_server import RealServer

BUDGET_S = 25
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


@pytest.mark.slow
def test_schemathesis_finds_no_5xx_and_nothing_undocumented(server: RealServer, tmp_path: Path) -> None:
    person = server.new_user("roamer")
    done = subprocess.run(
        [
            Path(sys.executable).with_name("schemathesis"), "run", f"{server.url}/v1/openapi.json",
            "-H", f"Authorization: Bearer {person.token}", "--checks", CHECKS, "--max-time", str(BUDGET_S),
            "--phases", "examples,coverage,fuzzing", "--max-examples", "8", "--no-shrink", "--no-color",
            "--continue-on-failure", "--suppress-health-check", "all", "--generation-database", "none",
            "--warnings", "off",
            # it does not end by itself; the tests of what is live read it
            "--exclude-path", "/v1/sessions/{id}/events",
        ],
        cwd=tmp_path, capture_output=True, text=True, timeout=6 * BUDGET_S, check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
    # it ran, and was let in: nearly everything but health wants a token
    assert "passed" in done.stdout, done.stdout[-2_000:]
