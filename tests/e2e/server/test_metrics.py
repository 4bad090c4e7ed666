"""One endpoint tells of all trusted processes, what they did and what they use, and never of a user."""

import re
import urllib.request

from tests.fakes.model_server import FakeModelServer, Script
from tests.fakes.real_server import LIMIT_S, RealServer, new_person, until

_OPEN = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.3"


def scrape(server: RealServer, accept: str = _OPEN) -> str:
    address = f"http://127.0.0.1:{server.admin_port}/metrics"
    request = urllib.request.Request(address, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
        text: str = answer.read().decode()
    return text


def value(text: str, series: str) -> float:
    found = re.search(rf"^{re.escape(series)} (\S+)", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def test_a_scrape_tells_of_core_egress_and_spawner(server: RealServer, model: FakeModelServer) -> None:
    person = new_person(server, "measured")
    asked = 'certosa_provider_requests_total{outcome="ok",provider="fake"}'
    tokens = 'certosa_tokens_total{direction="output",provider="fake"}'
    before = scrape(server)
    model.say(Script(text="counted words", rate_per_s=50))
    assert person.ask("count", model="fake").text == "counted words"

    growing = (
        asked,
        tokens,
        "certosa_turns_started_total",
        'certosa_edge_frames_total{direction="in",kind="item"}',
        'certosa_edge_bytes_total{direction="out",kind="request"}',
        'certosa_vault_operations_total{operation="verify_token",outcome="ok"}',
        'certosa_store_commit_seconds_count{store="ledger"}',
        'certosa_loop_lag_seconds_count{loop="hub"}',
        'certosa_loop_lag_seconds_count{loop="edge"}',
        'certosa_loop_lag_seconds_count{loop="egress"}',
        'certosa_spawner_events_total{event="jail_started"}',
    )

    def all_grown() -> str:
        text = scrape(server)  # what goes by a timer may come with a later one
        return text if all(value(text, name) > value(before, name) for name in growing) else ""

    text = until("the request in a scrape", all_grown)
    for process in ("core", "egress", "spawner"):
        assert value(text, f'certosa_process_up{{process="{process}"}}') == 1
        assert value(text, f'certosa_process_memory_bytes{{process="{process}"}}') > 1 << 20
        assert value(text, f'certosa_process_descriptors{{process="{process}"}}') > 3
        assert value(text, f'certosa_process_cpu_seconds_total{{process="{process}"}}') > 0
    starts = [f'certosa_jail_spawn_seconds_count{{start="{start}"}}' for start in ("fork", "exec")]
    assert sum(value(text, s) for s in starts) > sum(value(before, s) for s in starts)
    assert value(text, 'certosa_store_commit_seconds_count{store="audit"}') > 0  # its start, at least
    assert value(text, 'certosa_provider_breaker{provider="fake",state="closed"}') == 1
    for there in (
        "machine_available_bytes",
        "pool_memory_budget_bytes",
        "pool_capacity_jails",
        "turns_limit",
    ):
        assert value(text, f"certosa_{there}") > 0
    assert re.search(r'certosa_first_token_seconds_bucket\{le="[^"]+"\} \S+ # \{request_id="req_', text)
    assert re.search(r'provider="fake"\} \S+ # \{request_id="req_', text)
    assert "measured" not in re.sub(r"^# .*$", "", text, flags=re.MULTILINE)


def test_an_old_scraper_gets_the_plain_format(server: RealServer) -> None:
    text = scrape(server, "*/*")
    assert "# EOF" not in text
    assert "request_id" not in text
    assert value(text, 'certosa_process_up{process="egress"}') == 1
