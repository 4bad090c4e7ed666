"""A real Prometheus beside a test: found, started on a port of its own, asked, ended."""

import json
import os
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fakes.real_server import ROOT, free_ports, until

GRAFANA = ROOT / "grafana"
_LIMIT_S = 30.0


def program(name: str) -> str:
    """The path of ``prometheus`` or ``promtool``; skips the test where it is not to be had."""
    places = [os.environ.get("CERTOSA_PROMETHEUS", ""), *os.get_exec_path()]
    found = shutil.which(name, path=os.pathsep.join(filter(None, places)))
    if found is None:
        pytest.skip(f"{name} is not there: scripts/test fetches Debian's package, or install it")
    return found


class Prometheus:
    """One that runs."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, **values: str) -> Any:
        """What its API answers; AssertionError with its words where it refuses."""
        query = urllib.parse.urlencode(values)
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=_LIMIT_S) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{values}: {error.read().decode()}") from None

    def series(self, expression: str) -> list[dict[str, Any]]:
        """The series that an expression gives now."""
        found: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return found


@contextmanager
def prometheus(directory: Path, admin_port: int) -> Iterator[Prometheus]:
    """One that scrapes a server every two seconds, with the rules of grafana/prometheus.

    Args:
        directory: for its data, of the test's own.
        admin_port: of the server's administrators' listener.
    """
    path = program("prometheus")
    config = yaml.safe_load((GRAFANA / "prometheus/prometheus.yml").read_text())
    # on a busy machine a scrape may need longer than it would; a late one is none
    config["global"] = {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(GRAFANA / "prometheus/rules.yml")]
    (job,) = config["scrape_configs"]
    (targets,) = job["static_configs"]
    assert targets["targets"] == ["127.0.0.1:8701"]
    targets["targets"] = [f"127.0.0.1:{admin_port}"]
    (port,) = free_ports(1)
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                path,
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--enable-feature=exemplar-storage",
            ],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        one = Prometheus(f"http://127.0.0.1:{port}")

        def ready() -> bool:
            assert process.poll() is None, (directory / "prometheus.log").read_text()[-2000:]
            try:
                with urllib.request.urlopen(f"{one.url}/-/ready", timeout=_LIMIT_S):
                    return True
            except OSError:
                return False

        until("Prometheus", ready)
        yield one
    finally:
        process.terminate()
        try:
            process.wait(_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
