"""What grafana/ shows and computes: each expression of dashboards and rules, and the names in it."""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

from core.metrics import EgressMetrics, Metrics
from jail.host.measure import own_use
from tests.fakes.real_server import ROOT

GRAFANA = ROOT / "grafana"


class Shown(NamedTuple):
    """An expression, and where it stands."""

    where: str
    expression: str


def dashboards() -> dict[str, dict[str, Any]]:
    """Each dashboard's contents, by the name of its file."""
    return {
        path.name: json.loads(path.read_text()) for path in sorted((GRAFANA / "dashboards").glob("*.json"))
    }


def panels() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each panel that shows something, with its dashboard and title."""
    for name, board in dashboards().items():
        for panel in board["panels"]:
            if panel["type"] != "row":
                yield f"{name}: {panel['title']}", panel


def rules() -> list[dict[str, Any]]:
    """Each rule, recording and alerting."""
    groups = yaml.safe_load((GRAFANA / "prometheus/rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def of_panels() -> list[Shown]:
    """Each expression of each panel."""
    return [Shown(where, target["expr"]) for where, panel in panels() for target in panel["targets"]]


def of_rules() -> list[Shown]:
    """Each expression of each rule."""
    return [Shown(rule.get("alert") or rule["record"], rule["expr"]) for rule in rules()]


def names_in(expression: str) -> set[str]:
    """The series that it asks for; strings are not looked into."""
    return set(re.findall(r"\bcertosa[_:][\w:]*", re.sub(r'"[^"]*"', '""', expression)))


def declared() -> set[str]:
    """Each name of a sample that core's and egress's registries give."""
    core, egress = Metrics(), EgressMetrics(["builtin"], ["verify_token"])
    core.processes.show("core", own_use())
    found = set()
    for registry in (core.registry, egress.registry):
        for family in registry.collect():
            found |= {sample.name for sample in family.samples} | _of(family.name, family.type)
    return found


def _of(name: str, kind: str) -> set[str]:
    """What a family has once something was observed."""
    ends = {"histogram": ("_bucket", "_sum", "_count"), "gaugehistogram": ("_bucket", "_gsum", "_gcount")}
    return {name + end for end in ends.get(kind, ())}
