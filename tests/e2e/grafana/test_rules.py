"""Alerts fire when they should and stay still when they should not: promtool's own tests of the rules."""

import subprocess

from tests.fakes.prometheus import GRAFANA, program


def promtool(*arguments: str) -> str:
    done = subprocess.run(
        [program("promtool"), *arguments], cwd=GRAFANA / "prometheus",
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_configuration_and_the_rules_are_right() -> None:
    assert "rules found" in promtool("check", "config", "prometheus.yml")


def test_each_alert_fires_for_a_server_that_is_ill_and_for_no_other() -> None:
    assert "SUCCESS" in promtool("test", "rules", "rules_test.yml")
