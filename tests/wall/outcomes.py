"""Collects the outcomes of the wall's tests into one JSON file: ``pytest --wall-report FILE tests/jail``.

The file is one host's and one kind of user's: ``{"host", "user", "cases": {case: {start: outcome}}}``, an
outcome being "passed", "failed", or "skipped: why" where nothing of it could run. Works beside pytest-xdist:
what a test stands for travels with its reports.
"""

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from jail.host.doctor import cgroup_controllers
from tests.wall.cases import CASES

STARTS = ("fork", "exec")
_WALL = "wall"


class Outcomes:
    """A pytest plug-in; ``path`` None only checks the marks."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._seen: dict[tuple[str, str], set[str]] = {}

    @pytest.hookimpl
    def pytest_collection_modifyitems(self, items: Sequence[pytest.Item]) -> None:
        """Write what each test stands for into what its reports carry."""
        for item in items:
            for mark in item.iter_markers(_WALL):
                (case,) = mark.args
                if case not in CASES:
                    raise pytest.UsageError(f"{item.nodeid}: no case {case!r} in tests/wall/cases.py")
                kind = getattr(item, "callspec", None) and item.callspec.params.get("kind")  # type: ignore[attr-defined]
                starts = [kind] if kind else [mark.kwargs["start"]] if "start" in mark.kwargs else STARTS
                item.user_properties += [(_WALL, [case, start]) for start in starts]

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take a test's outcome; what fails before or after the test itself fails it."""
        if report.when != "call" and report.passed:
            return
        outcome: str = report.outcome
        if report.skipped:
            outcome = f"skipped: {report.longrepr[2] if isinstance(report.longrepr, tuple) else ''}"
        for name, value in report.user_properties:
            if name == _WALL and isinstance(value, (list, tuple)):
                case, start = value
                self._seen.setdefault((case, start), set()).add(outcome)

    @pytest.hookimpl
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the file, in the process that saw all reports."""
        if self._path is None or hasattr(session.config, "workerinput"):
            return
        cases: dict[str, dict[str, str]] = {}
        for (case, start), outcomes in sorted(self._seen.items()):
            cases.setdefault(case, {})[start] = _sum_up(outcomes)
        user = "root" if os.geteuid() == 0 else "ordinary"
        found = {"host": describe_host(), "user": user, "cases": cases}
        self._path.write_text(json.dumps(found, indent=1) + "\n")


def _sum_up(outcomes: set[str]) -> str:
    if "failed" in outcomes:
        return "failed"
    return "passed" if "passed" in outcomes else min(outcomes)


def describe_host() -> str:
    """What may matter: distribution, kernel, cgroup version, bubblewrap; without this machine's own name."""
    system = platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    kernel = ".".join(os.uname().release.split("-")[0].split(".")[:2])
    said = subprocess.run(["bwrap", "--version"], capture_output=True, text=True, check=True, timeout=60)
    cgroup = (cgroup_controllers() or "none").split(":")[0]
    return f"{system}, kernel {kernel}, cgroup {cgroup}, {said.stdout.strip()}"
