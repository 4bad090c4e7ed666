"""Metrics have closed labels; log lines are JSON without what must not be there."""

import itertools
import json
import logging
import re
from collections.abc import Iterator
from typing import Literal

import msgspec
import pytest
import structlog
from prometheus_client import generate_latest

from actors.edge import Totals
from core.exposition import render
from core.families import Family, families_of
from core.log import configure_logging
from core.metrics import EgressMetrics, Metrics
from core.pool.jails import PoolNow
from jail.host.measure import own_use
from jail.wire.schema import Failure, TurnEnd


def test_every_metric_has_our_prefix_a_unit_and_its_series_from_the_start() -> None:
    text = (
        generate_latest(Metrics().registry) + generate_latest(EgressMetrics(["builtin"], ["ping"]).registry)
    ).decode()
    names = re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE)
    for name, kind in names:
        assert name.startswith("certosa_")
        if kind == "counter":
            assert name.endswith(("_total", "_created"))
        if kind == "histogram":
            assert name.endswith(("_seconds", "_bytes", "_messages"))
    assert 'certosa_provider_requests_total{outcome="upstream",provider="builtin"} 0.0' in text
    assert 'certosa_vault_operations_total{operation="ping",outcome="refused"} 0.0' in text
    assert 'certosa_edge_frames_total{direction="in",kind="item"} 0.0' in text
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
    metrics.frame("in", "alice", 7)
    metrics.ask_timed_out("alice")
    text = generate_latest(metrics.registry).decode()
    assert len(text.splitlines()) == before
    assert 'certosa_edge_bytes_total{direction="in",kind="other"} 7.0' in text
    assert "alice" not in text
    assert 'certosa_jails_ended_total{reason="other"} 1.0' in text
    assert 'certosa_jails_ended_total{reason="fault"} 1.0' in text
    assert 'certosa_http_requests_total{route="other",status="5xx"} 1.0' in text


def test_the_edge_is_asked_for_its_counts_whenever_the_metrics_are() -> None:
    metrics, rounds = Metrics(), itertools.count(3)
    metrics.watch_edge(lambda: Totals(5, 70, next(rounds), 1))
    value = metrics.registry.get_sample_value
    assert value("certosa_edge_slowed_total") == 1
    before = value("certosa_edge_rounds_total")
    after = value("certosa_edge_rounds_total")
    assert before is not None
    assert after is not None
    assert after > before >= 3


def test_what_egress_counts_has_closed_labels_too() -> None:
    metrics = EgressMetrics(["builtin"], ["ping"])
    before = len(generate_latest(metrics.registry).splitlines())
    metrics.request_began("builtin")
    metrics.request_ended("builtin", "alice", 0.1, "")
    metrics.vault_answered("alice", "ok", 0.1, 0)
    metrics.audited("alice")
    text = generate_latest(metrics.registry).decode()
    assert len(text.splitlines()) == before
    assert "alice" not in text
    assert 'certosa_provider_requests_total{outcome="other",provider="builtin"} 1.0' in text


def test_memory_of_jails_is_a_distribution_beside_budget_and_capacity() -> None:
    metrics = Metrics()
    metrics.pool.show(
        PoolNow(
            jails_bytes=(3 << 20, 3 << 20, (4 << 20) + 1, 2 << 30), budget_bytes=1 << 30, capacity_jails=99
        )
    )
    value = metrics.registry.get_sample_value
    buckets = [
        value("certosa_pool_jail_memory_bytes_bucket", {"le": le})
        for le in (str(float(2 << 20)), str(float(3 << 20)), str(float(6 << 20)), "+Inf")
    ]
    assert buckets == [0, 2, 3, 4]
    assert value("certosa_pool_jail_memory_bytes_gcount") == 4
    assert value("certosa_pool_memory_budget_bytes") == 1 << 30
    assert value("certosa_pool_capacity_jails") == 99


def test_metrics_of_several_processes_are_one_answer_with_exemplars_where_they_are_taken() -> None:
    core, egress = Metrics(), EgressMetrics(["builtin"], [])
    core.turn_started()
    core.turn_ended(TurnEnd("stop"), 0.3, "req_1")
    for metrics, loop in ((core, "hub"), (egress, "egress")):
        metrics.processes.show(loop, own_use())
    found = [*families_of(core.registry), *families_of(egress.registry)]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=list[Family]) == found
    body, kind = render(found, "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.3")
    text = body.decode()
    assert kind.startswith("application/openmetrics-text")
    assert text.endswith("# EOF\n")
    assert text.count("# TYPE certosa_process_cpu_seconds counter") == 1
    assert 'certosa_process_threads{process="egress"}' in text
    assert 'certosa_process_threads{process="hub"}' in text
    assert re.search(r'certosa_turn_seconds_bucket\{le="0.5"\} 1.0 # \{request_id="req_1"\} 0.3 ', text)
    assert "_created" not in text
    plain, kind = render(found, "text/plain;version=0.0.4")
    assert kind.startswith("text/plain")
    assert b"req_1" not in plain


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
