"""A real Prometheus scrapes a real server under a little load: each panel and each rule shows something."""

import re
from pathlib import Path

import pytest

from tests.fakes.model_server import Script, running_model_server
from tests.fakes.prometheus import program, prometheus
from tests.fakes.real_server import UNATTACKED, new_person, real_server, until, with_model
from tests.fakes.shown import Shown, names_in, of_panels, of_rules

_COMPARED = re.compile(r" (==|!=|>=|<=|>|<) ")


def as_asked(shown: Shown) -> str:
    """As Grafana would send it; a comparison tells whether it holds, and leaves nothing out."""
    expression = shown.expression.replace("$__rate_interval", "1m").replace("$instance", ".*")
    return _COMPARED.sub(r" \1 bool ", expression)


def test_every_expression_of_every_panel_and_rule_gives_series(tmp_path: Path) -> None:
    program("prometheus")  # before a server is started for nothing
    asked = [*of_panels(), *of_rules()]
    assert len(asked) > 100
    with (
        running_model_server(keep_alive=False) as model,
        real_server(with_model(model.url), before=UNATTACKED) as server,
        prometheus(tmp_path, server.admin_port) as watcher,
    ):
        people = [new_person(server, f"shown-{number}") for number in range(3)]
        until("a scrape before anything happened", lambda: watcher.series("certosa_turns_started_total"))
        for person in people:
            model.say(Script(text="some words to count", rate_per_s=100))
            assert person.ask("hello", model="fake").finish == "stop"
        until("the turns", lambda: watcher.series("sum(certosa_turns_ended_total) >= 3"))
        until("the jails' memory", lambda: watcher.series("certosa_pool_memory_bytes > 0"))

        missing = {shown: as_asked(shown) for shown in asked}

        def all_there() -> bool:
            for shown, expression in list(missing.items()):
                if watcher.series(expression):
                    del missing[shown]
            return not missing

        try:
            until("series of all", all_there)
        except AssertionError:
            pytest.fail(f"nothing is shown for {sorted(missing)}")

        # what is shown is of the server, not of Prometheus's own making
        there = set(watcher.get("label/__name__/values"))
        assert {name for shown in asked for name in names_in(shown.expression)} <= there
        quantile = "histogram_quantile(0.95, certosa_first_token_seconds_bucket)"
        until("a first token's time", lambda: watcher.series(f"{quantile} > 0 < 60"))
        until("a jail's memory", lambda: watcher.series("max(certosa_pool_jail_memory_bytes_bucket) >= 1"))
        traced = watcher.get(
            "query_exemplars", query="certosa_turn_seconds_bucket", start="0", end="99999999999"
        )
        assert traced[0]["exemplars"][0]["labels"]["request_id"].startswith("req_")
        firing = watcher.series('ALERTS{alertstate="firing"}')
        assert [one["metric"]["alertname"] for one in firing] == []
