"""A load test's figures, made of its record and its samples, and whether its objectives were met."""

from typing import Any

from scripts.load.plan import Scenario
from scripts.load.record import WINDOW_S, Histogram, Window, merged

_NAMES = {"first": "first_token", "whole": "turn", "delta": "delta", "floor": "floor"}
_SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_WATCHED = "streamer/"

Figures = dict[str, float | None]


def figures(result: dict[str, Any]) -> Figures:
    """Every figure by name, from what came once all had settled; None where there is nothing to take it from.

    ``delta_*`` is a token's delay from the model server to the client, ``floor_*`` the same asked directly,
    ``delta_added_*`` the difference. ``least_served`` is what the least of the streamers was given, as a
    part of the median. ``cpu_*`` is CPUs used, ``memory_*`` bytes at the end.
    """
    whole = merged(result["windows"], result["settle_s"])
    judged_s = max(WINDOW_S, result["seconds"] - result["settle_s"])
    found: Figures = {
        "turns_per_s": whole.ends.total() / judged_s,
        "tokens_per_s": whole.delta.count / judged_s,
        "errors": float(sum(count for code, count in whole.ends.items() if code)),
    }
    for name, shown in _NAMES.items():
        histogram: Histogram = getattr(whole, name)
        for share, value in _SHARES.items():
            found[f"{shown}_{share}_ms"] = _rounded(histogram.percentile(value))
    for share in _SHARES:
        delta, floor = found[f"delta_{share}_ms"], found[f"floor_{share}_ms"]
        found[f"delta_added_{share}_ms"] = None if delta is None or floor is None else _rounded(delta - floor)
    found["least_served"] = _least_served(whole)
    found.update(_of_samples(result["samples"], result["settle_s"]))
    return found


def errors(result: dict[str, Any]) -> dict[str, int]:
    """Errors by code, of the whole time."""
    whole = merged(result["windows"], 0.0)
    return {code: count for code, count in whole.ends.most_common() if code}


def verdicts(scenario: Scenario, found: Figures) -> list[dict[str, Any]]:
    """Each objective with what was found, and whether it is met."""
    return [
        {
            "figure": objective.figure,
            "limit": objective.limit,
            "least": objective.least,
            "unit": objective.unit,
            "found": found.get(objective.figure),
            "met": objective.met(found.get(objective.figure)),
        }
        for objective in scenario.objectives
    ]


def _least_served(whole: Window) -> float | None:
    served = sorted(count for who, count in whole.served.items() if who.startswith(_WATCHED))
    return None if not served else served[0] / served[len(served) // 2]


def _of_samples(samples: list[dict[str, Any]], from_s: float) -> Figures:
    found: Figures = {}
    judged = [sample for sample in samples if sample["at_s"] >= from_s] or samples
    first, last = judged[0], judged[-1]
    span_s = last["at_s"] - first["at_s"]
    for name, now in last["processes"].items():
        key = name.replace(" ", "_")
        if span_s > 0:
            used_s = now["cpu_s"] - first["processes"][name]["cpu_s"]
            found[f"cpu_{key}"] = _rounded(used_s / span_s)
        found[f"memory_{key}"] = now["memory_bytes"]
    found["jails"] = last["jails"]
    found["memory_a_jail"] = last["jail_bytes"] / last["jails"] if last["jails"] else None
    return found


def _rounded(value: float | None) -> float | None:
    """Four significant digits."""
    return None if value is None else float(f"{value:.4g}")
