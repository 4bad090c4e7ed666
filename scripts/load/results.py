"""A load test's figures, made of its record and its samples, and whether its objectives were met."""

import math
from statistics import fmean
from typing import Any

from scripts.load.plan import TRUSTED, Scenario
from scripts.load.record import WINDOW_S, Histogram, Window, merged

_NAMES = {"first": "first_token", "whole": "turn", "delta": "delta", "floor": "floor"}
_SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_WATCHED = "streamer/"
_MIB = 1 << 20

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
        used_s = now["cpu_s"] - first["processes"][name]["cpu_s"]
        found[f"cpu_{key}"] = _rounded(used_s / span_s) if span_s > 0 else None
        found[f"memory_{key}"] = now["memory_bytes"]
    found.update(_trends(judged))
    found["jails"] = last["jails"]
    found["memory_a_jail"] = last["jail_bytes"] / last["jails"] if last["jails"] else None
    return found


def _trends(samples: list[dict[str, Any]]) -> Figures:
    """Whether anything grows: ``slope_*`` with ``slope_error_*``, and what ``grown_*`` from the first
    quarter's mean to the last one's, the most of any trusted process."""
    found: Figures = {}
    hours = [sample["at_s"] / 3_600 for sample in samples]
    trusted = [name for name in samples[-1]["processes"] if name in TRUSTED]
    sizes = {name: [sample["processes"][name]["own_bytes"] / _MIB for sample in samples] for name in trusted}
    sizes["a_jail"] = [sample["jail_bytes"] / _MIB / max(1, sample["jails"]) for sample in samples]
    for name, values in sizes.items():
        slope, error = slope_and_error(hours, values)
        found[f"slope_{name}_mib_h"], found[f"slope_error_{name}_mib_h"] = _rounded(slope), _rounded(error)
    quarter = max(1, len(samples) // 4)
    for what in ("descriptors", "threads"):
        found[f"grown_{what}"] = max(
            (
                fmean(s["processes"][name][what] for s in samples[-quarter:])
                - fmean(s["processes"][name][what] for s in samples[:quarter])
                for name in trusted
            ),
            default=None,
        )
    return found


def slope_and_error(times: list[float], values: list[float]) -> tuple[float | None, float | None]:
    """The slope of the least squares' line and its standard error; None of fewer than three points.

    The error takes what is left over for independent; where neighbours are alike it is too small.
    """
    count = len(times)
    if count < 3:
        return None, None
    mean_t, mean_v = fmean(times), fmean(values)
    spread = sum((t - mean_t) ** 2 for t in times)
    if spread == 0:
        return None, None
    slope = sum((t - mean_t) * (v - mean_v) for t, v in zip(times, values, strict=True)) / spread
    left = sum((v - mean_v - slope * (t - mean_t)) ** 2 for t, v in zip(times, values, strict=True))
    return slope, math.sqrt(left / (count - 2) / spread)


def _rounded(value: float | None) -> float | None:
    """Four significant digits."""
    return None if value is None else float(f"{value:.4g}")
