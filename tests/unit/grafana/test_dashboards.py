"""What stands in grafana/: made from scripts/boards, of names that there are, and explained."""

import re
from typing import Any

import pytest
import yaml

from scripts.boards.made import files
from tests.fakes.real_server import ROOT
from tests.fakes.shown import (
    GRAFANA,
    dashboards,
    declared,
    names_in,
    of_panels,
    of_rules,
    panels,
    rules,
)

_PROMETHEUS_OWN = {"up", "ALERTS"}


def test_the_dashboards_are_what_scripts_dashboards_writes() -> None:
    kept = {path.name: path.read_text() for path in (GRAFANA / "dashboards").iterdir()}
    assert kept == files(), "run scripts/dashboards"
    assert sorted(kept) == ["edge.json", "overview.json", "pool.json", "security.json", "turns.json"]


@pytest.mark.parametrize(("where", "panel"), list(panels()))
def test_each_panel_has_a_text_a_unit_legends_and_thresholds(where: str, panel: dict[str, Any]) -> None:
    assert len(panel["description"]) > 15, where
    defaults = panel["fieldConfig"]["defaults"]
    assert defaults["unit"]
    values = [step["value"] for step in defaults["thresholds"]["steps"]]
    assert values[0] is None
    assert len(values) == 3
    assert values[1:] == sorted(values[1:])
    assert panel["targets"]
    for target in panel["targets"]:
        assert target["legendFormat"]
        assert target["datasource"] == panel["datasource"]


def test_each_series_of_a_panel_is_narrowed_to_the_servers_that_are_chosen() -> None:
    for where, expression in of_panels():
        for name in names_in(expression):
            narrowed = re.findall(rf'\b{re.escape(name)}\{{instance=~"\$instance"', expression)
            assert len(narrowed) == len(re.findall(rf"\b{re.escape(name)}\b(?![:\w])", expression)), where


def test_panels_and_rules_name_only_what_the_metrics_modules_and_the_rules_declare() -> None:
    there = declared()
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    used: set[str] = set()
    for where, expression in [*of_panels(), *of_rules()]:
        names = names_in(expression)
        used |= names
        assert names or any(own in expression for own in _PROMETHEUS_OWN), where
        assert names <= there | recorded, where
    assert recorded <= used, "what no panel and no rule asks for needs no rule"


def test_links_lead_to_dashboards_that_there_are_and_each_is_led_to() -> None:
    there = {board["uid"] for board in dashboards().values()}
    to = set()
    for where, panel in panels():
        for link in panel.get("links", []):
            found = re.match(r"/d/([\w-]+)\?", link["url"])
            assert found is not None, where
            assert "${instance:queryparam}" in link["url"]
            to.add(found[1])
    assert to == there


def test_each_dashboard_has_the_variable_instance_and_links_to_the_others() -> None:
    for board in dashboards().values():
        (variable,) = board["templating"]["list"]
        assert (variable["name"], variable["multi"], variable["includeAll"]) == ("instance", True, True)
        assert [link["tags"] for link in board["links"]] == [["certosa"]]
        assert board["tags"] == ["certosa"]
        ids = [panel["id"] for panel in board["panels"]]
        assert len(ids) == len(set(ids))


def test_panels_lie_beside_and_below_each_other_and_nowhere_twice() -> None:
    for name, board in dashboards().items():
        taken: set[tuple[int, int]] = set()
        for panel in board["panels"]:
            at = panel["gridPos"]
            cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
            assert not cells & taken, f"{name}: {panel['title']}"
            assert at["x"] + at["w"] <= 24
            taken |= cells


def test_each_alert_says_how_bad_it_is_and_has_its_entry_in_the_runbook() -> None:
    alerts = [rule for rule in rules() if "alert" in rule]
    entries = re.findall(r"^## (Certosa\w+)$", (ROOT / "docs/runbook.md").read_text(), re.MULTILINE)
    assert entries == [rule["alert"] for rule in alerts]
    for rule in alerts:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["runbook"] == f"docs/runbook.md#{rule['alert'].lower()}"


def test_each_alert_is_tried_by_promtool() -> None:
    tried = yaml.safe_load((GRAFANA / "prometheus/rules_test.yml").read_text())["tests"]
    assert [test["name"] for test in tried][:-1] == [rule["alert"] for rule in rules() if "alert" in rule]


def test_what_is_provisioned_is_what_the_dashboards_ask() -> None:
    (source,) = yaml.safe_load((GRAFANA / "provisioning/datasources/certosa.yaml").read_text())["datasources"]
    assert {panel["datasource"]["uid"] for _, panel in panels()} == {source["uid"]}
    (provider,) = yaml.safe_load((GRAFANA / "provisioning/dashboards/certosa.yaml").read_text())["providers"]
    services = yaml.safe_load((GRAFANA / "compose.yaml").read_text())["services"]
    mounts = dict(volume.split(":")[:2] for volume in services["grafana"]["volumes"])
    assert mounts["./dashboards"] == provider["options"]["path"]
    assert mounts["./provisioning"] == "/etc/grafana/provisioning"
    assert all((GRAFANA / path).is_dir() for path in mounts if path.startswith("./"))
    assert source["url"].removeprefix("http://") in " ".join(services["prometheus"]["command"])
