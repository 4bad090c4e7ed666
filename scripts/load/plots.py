"""The plots of a load test's report, as PNG files in memory."""

import base64
import io
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from scripts.load.plan import TRUSTED
from scripts.load.record import WINDOW_S, Window

_SIZE_INCHES = (9.0, 2.9)
_DPI = 100
_MIB = 1 << 20


def draw(result: dict[str, Any]) -> list[tuple[str, str, bytes]]:
    """Title, what it says, and the picture, of each plot."""
    windows = [(found["at_s"], Window.from_json(found)) for found in result["windows"]]
    plots: list[tuple[str, str, Callable[[Axes], None]]] = [
        (
            "Turns and tokens",
            "What was given in each second.",
            lambda axes: _throughput(axes, windows),
        ),
        (
            "First token and whole turn",
            "From the request; the median and the 99th percentile of each five seconds.",
            lambda axes: _times(axes, windows),
        ),
        (
            "A token's delay",
            "From the model server to the client; the floor is the same without Certosa between.",
            lambda axes: _delays(axes, windows),
        ),
        ("CPU", "CPUs used by each process; jails together.", lambda axes: _cpu(axes, result)),
        (
            "Memory",
            "Proportional set sizes; jails together on the right-hand scale.",
            lambda axes: _memory(axes, result),
        ),
        (
            "Descriptors and threads",
            "Of the trusted processes: flat, if nothing leaks.",
            lambda axes: _handles(axes, result),
        ),
    ]
    return [(title, about, _picture(plot, result)) for title, about, plot in plots]


def data_url(png: bytes) -> str:
    """A picture as a page can hold it."""
    return "data:image/png;base64," + base64.b64encode(png).decode()


def _picture(plot: Callable[[Axes], None], result: dict[str, Any]) -> bytes:
    figure = Figure(figsize=_SIZE_INCHES, dpi=_DPI, layout="constrained")
    axes = figure.subplots()
    plot(axes)
    axes.set_xlabel("seconds since the start")
    axes.set_xlim(0, result["seconds"])
    if result["settle_s"]:
        axes.axvspan(0, result["settle_s"], color="0.93", zorder=0)
    axes.grid(alpha=0.3)
    # colours and marks differ, so that the plot can be read in print and by the colour-blind
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc="upper left", bbox_to_anchor=(1.08, 1.0), fontsize="small", frameon=False)
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def _throughput(axes: Axes, windows: list[tuple[float, Window]]) -> None:
    at_s = [begin for begin, _ in windows]
    axes.plot(at_s, [window.delta.count / WINDOW_S for _, window in windows], label="tokens")
    axes.set_ylabel("tokens/s")
    axes.set_ylim(bottom=0)
    other = axes.twinx()
    turns = [window.ends.total() / WINDOW_S for _, window in windows]
    errors = [sum(n for code, n in window.ends.items() if code) / WINDOW_S for _, window in windows]
    other.plot(at_s, turns, "--", color="tab:green")
    other.plot(at_s, errors, ":", color="tab:red", linewidth=2)
    other.set_ylabel("turns/s")
    other.set_ylim(bottom=0)
    axes.plot([], [], "--", color="tab:green", label="turns")
    axes.plot([], [], ":", color="tab:red", linewidth=2, label="errors")


def _times(axes: Axes, windows: list[tuple[float, Window]]) -> None:
    for name, label, colour in (("first", "first token", "tab:blue"), ("whole", "turn", "tab:orange")):
        _percentiles(axes, windows, name, label, colour)
    _milliseconds(axes)


def _delays(axes: Axes, windows: list[tuple[float, Window]]) -> None:
    for name, label, colour in (("delta", "delay", "tab:blue"), ("floor", "floor", "0.5")):
        _percentiles(axes, windows, name, label, colour)
    _milliseconds(axes)


def _milliseconds(axes: Axes) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))
    axes.set_ylabel("milliseconds")


def _percentiles(axes: Axes, windows: list[tuple[float, Window]], name: str, label: str, colour: str) -> None:
    for share, style, shown in ((0.5, "-", "p50"), (0.99, ":", "p99")):
        points = [(begin, getattr(window, name).percentile(share)) for begin, window in windows]
        known = [(begin, value) for begin, value in points if value is not None]
        axes.plot(
            [begin for begin, _ in known], [value for _, value in known],
            style, color=colour, label=f"{label} {shown}",
        )  # fmt: skip


def _cpu(axes: Axes, result: dict[str, Any]) -> None:
    samples = result["samples"]
    for name in samples[0]["processes"]:
        _rates(axes, samples, partial(_cpu_s, name), name)
    _rates(axes, samples, lambda sample: sample["jail_cpu_s"], "jails", "--")
    axes.set_ylabel("CPUs")
    axes.set_ylim(bottom=0)


def _cpu_s(name: str, sample: dict[str, Any]) -> float:
    return float(sample["processes"][name]["cpu_s"])


def _rates(
    axes: Axes, samples: list[dict[str, Any]], value: Callable[[Any], float], label: str, style: str = "-"
) -> None:
    pairs = list(itertools.pairwise(samples))
    rates = [
        # jails that ended take their time along: a fall says nothing
        max(0.0, (value(after) - value(before)) / (after["at_s"] - before["at_s"]))
        for before, after in pairs
    ]
    axes.plot([after["at_s"] for _, after in pairs], rates, style, label=label)


def _memory(axes: Axes, result: dict[str, Any]) -> None:
    samples = result["samples"]
    at_s = [sample["at_s"] for sample in samples]
    for name in TRUSTED:
        axes.plot(at_s, [s["processes"][name]["memory_bytes"] / _MIB for s in samples], label=name)
    axes.set_ylabel("MiB")
    axes.set_ylim(bottom=0)
    other = axes.twinx()
    other.plot(at_s, [sample["jail_bytes"] / _MIB for sample in samples], "--", color="tab:red")
    other.set_ylabel("MiB, jails")
    other.set_ylim(bottom=0)
    axes.plot([], [], "--", color="tab:red", label=f"jails ({samples[-1]['jails']} at the end)")


def _handles(axes: Axes, result: dict[str, Any]) -> None:
    samples = result["samples"]
    at_s = [sample["at_s"] for sample in samples]
    for name in TRUSTED:
        (line,) = axes.plot(
            at_s, [s["processes"][name]["descriptors"] for s in samples], label=f"{name}, descriptors"
        )
        axes.plot(
            at_s, [s["processes"][name]["threads"] for s in samples],
            ":", color=line.get_color(), label=f"{name}, threads",
        )  # fmt: skip
    axes.set_ylim(bottom=0)
