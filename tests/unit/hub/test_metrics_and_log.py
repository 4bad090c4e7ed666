"""Metrics have closed labels; log lines are JSON without what must not be there."""

import itertools
import json
import logging
import re
from collections.abc import Iterator
from typing import Literal

import pytest
import structlog
from prometheus_client import generate_latest

from actors.edge import Totals
from core.log import configure_logging
from core.metrics import Metrics
from jail.wire.schema import Failure, TurnEnd


def test_every_metric_has_our_prefix_a_unit_and_its_series_from_the_start() -> None:
    text = generate_latest(Metrics().registry).decode()
    names = re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE)
    for name, kind in names:
        assert name.startswith("certosa_")
        if kind == "counter":
            assert name.endswith("_total")
    assert 'certosa_edge_faults_total{reason="oversize"} 0.0' in text
    assert 'certosa_turns_ended_total{outcome="cancelled"} 0.0' in text


def test_a_label_outside_its_set_counts_as_other_and_makes_no_series() -> None:
    metrics = Metrics()
    before = len(generate_latest(metrics.registry).splitlines())
    metrics.jail_ended("exit 137 of alice")
    metrics.jail_ended("fault_oversize")
    metrics.peer_faulted("alice")
    metrics.restarted("alice")
    metrics.handled("alice", 0.1, 3)
    metrics.http_answered("/v1/alice", 799)
    metrics.turn_refused("alice")
    text = generate_latest(metrics.registry).decode()
    assert len(text.splitlines()) == before
    assert "alice" not in text
    assert 'certosa_jails_ended_total{reason="other"} 1.0' in text
    assert 'certosa_jails_ended_total{reason="fault"} 1.0' in text
    assert 'certosa_http_requests_total{route="other",status="5xx"} 1.0' in text


def test_the_edge_is_asked_for_its_counts_whenever_the_metrics_are() -> None:
    metrics, frames = Metrics(), itertools.count(3)
    metrics.watch_edge(lambda: Totals(next(frames), 70, 2, 1))
    value = metrics.registry.get_sample_value
    text = generate_latest(metrics.registry).decode()
    for line in ("read_bytes_total 70.0", "rounds_total 2.0", "slowed_total 1.0"):
        assert f"certosa_edge_{line}" in text
    before = value("certosa_edge_frames_total")
    after = value("certosa_edge_frames_total")
    assert before is not None
    assert after is not None
    assert after > before >= 3


def test_turns_are_counted_in_and_out() -> None:
    metrics = Metrics()
    metrics.turn_started()
    metrics.turn_started()
    metrics.turn_ended(TurnEnd("wall"), 1.0)
    metrics.turn_ended(Failure("upstream", "x"), 2.0)
    value = metrics.registry.get_sample_value
    assert value("certosa_turns_started_total") == 2
    assert value("certosa_turns_running") == 0
    assert value("certosa_turns_ended_total", {"outcome": "wall"}) == 1
    assert value("certosa_turns_ended_total", {"outcome": "upstream"}) == 1
    assert value("certosa_turn_seconds_sum") == 3


@pytest.fixture
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("restored")
def test_a_line_is_json_with_process_level_and_time(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "json", "core")
    log = structlog.get_logger()
    log.debug("dropped_quietly")
    log.info("jail_started", spawn_s=0.01, odd={1, 2}.__class__)
    logging.getLogger("some.library").warning("watch %s", "out")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["event"] for line in lines] == ["jail_started", "watch out"]
    for line in lines:
        assert line["process"] == "core"
        assert line["level"] in ("info", "warning")
        assert line["timestamp"].endswith("Z")


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("format_", ["json", "console"])
def test_a_traceback_shows_no_locals(
    capsys: pytest.CaptureFixture[str], format_: Literal["json", "console"]
) -> None:
    configure_logging("info", format_, "core")

    def fail(secret: str) -> None:
        raise ValueError(len(secret))

    try:
        fail("-".join(["canary", "key"]))  # so that no line of code has it whole
    except ValueError:
        structlog.get_logger().exception("turn_failed")
    text = capsys.readouterr().err
    assert "ValueError: 10" in text
    assert "in fail" in text
    assert "canary-key" not in text


@pytest.mark.usefixtures("restored")
def test_a_terminal_gets_something_readable(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("warning", "console", "egress")
    structlog.get_logger().info("dropped_quietly")
    structlog.get_logger().warning("jail_started")
    text = capsys.readouterr().err
    assert "jail_started" in text
    assert "dropped" not in text
    with pytest.raises(json.JSONDecodeError):
        json.loads(text)
