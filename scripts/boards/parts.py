"""What all dashboards have in common: how a panel looks, which data source it asks, how it is linked.

Expressions are written without their server: each of Certosa's series is narrowed to the variable
``$instance`` here. Built with Grafana's own library, so that what comes out is of Grafana's schema.
"""

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeVar

from grafana_foundation_sdk.builders import common as looks
from grafana_foundation_sdk.builders import dashboard, heatmap, prometheus, stat, timeseries
from grafana_foundation_sdk.models import common as shapes
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE = models.DataSourceRef(type_val="prometheus", uid="certosa-prometheus")
TITLES = {
    "certosa-overview": "Overview",
    "certosa-pool": "Pool memory",
    "certosa-turns": "Turns and providers",
    "certosa-edge": "Edge and actors",
    "certosa-security": "Security",
}
_SERIES = re.compile(r"\b(certosa[_:]\w+(?::\w+)*)(\{)?")
_HEIGHT = 8
_Some = TypeVar("_Some", timeseries.Panel, stat.Panel, heatmap.Panel)

Unit = Literal[
    "short",
    "bytes", "Bps", "s", "percentunit", "ops", "reqps", "cps", "none", "bool_yes_no", "dateTimeFromNow"
]  # fmt: skip


class Ask(NamedTuple):
    """One expression of a panel's, and what its series are called there."""

    expression: str
    legend: str
    exemplars: bool = False


class Limit(NamedTuple):
    """From this value on a panel is orange, and from ``bad`` on red; ``low``: below them instead."""

    warn: float
    bad: float
    low: bool = False


def here(expression: str) -> str:
    """The expression for the servers that are looked at."""

    def narrow(found: re.Match[str]) -> str:
        return f'{found[1]}{{instance=~"$instance"' + (", " if found[2] else "}")

    return _SERIES.sub(narrow, expression)


def rate(series: str, by: str = "") -> str:
    """How often a second, summed over the labels that ``by`` does not name."""
    return f"sum by ({by}) (rate({series}[$__rate_interval]))"


def quantile(share: float, histogram: str, by: str = "") -> str:
    """A quantile of what was observed within the interval, by labels or of all."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, sum by ({labels}) (rate({histogram}_bucket[$__rate_interval])))"


def quantiles(histogram: str, shares: Sequence[float] = (0.5, 0.95, 0.99)) -> list[Ask]:
    """Several of all, with exemplars of requests."""
    return [Ask(quantile(share, histogram), f"p{share * 100:g}", exemplars=True) for share in shares]


def lines(
    title: str,
    text: str,
    unit: Unit,
    limit: Limit,
    *asks: Ask,
    to: str = "",
    width: int = 12,
    stacked: bool = False,
) -> timeseries.Panel:
    """Lines over time.

    Args:
        text: what is seen, and what to make of it.
        limit: see :class:`Limit`; drawn as dashed lines.
        to: the uid of the dashboard that has more of it.
        stacked: areas one upon the other, whose sum means something.
    """
    style = looks.GraphThresholdsStyleConfig().mode(shapes.GraphThresholdsStyleMode.DASHED)
    legend = (
        looks.VizLegendOptions()
        .display_mode(shapes.LegendDisplayMode.TABLE)
        .placement(shapes.LegendPlacement.BOTTOM)
        .show_legend(True)
        .calcs(["lastNotNull", "max"])
    )
    mode = shapes.StackingMode.NORMAL if stacked else shapes.StackingMode.NONE
    panel = (
        timeseries.Panel()
        .thresholds_style(style)
        .legend(legend)
        .stacking(looks.StackingConfig().mode(mode))
        .fill_opacity(30 if stacked else 8)
        .show_points(shapes.VisibilityMode.NEVER)
        .color_scheme(dashboard.FieldColor().mode(models.FieldColorModeId.PALETTE_CLASSIC))
        .axis_soft_min(0)
        .tooltip(looks.VizTooltipOptions().mode(shapes.TooltipDisplayMode.MULTI))
        .unit(unit)
        .thresholds(_steps(limit))
    )
    return _dressed(panel, title, text, asks, to).span(width).height(_HEIGHT)


def number(title: str, text: str, unit: Unit, limit: Limit, *asks: Ask, to: str = "") -> stat.Panel:
    """The present value, coloured by its limit; arguments as in :func:`lines`."""
    panel = (
        stat.Panel()
        .reduce_options(looks.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
        .color_mode(shapes.BigValueColorMode.VALUE)
        .graph_mode(shapes.BigValueGraphMode.AREA)
        .unit(unit)
        .thresholds(_steps(limit))
        .color_scheme(dashboard.FieldColor().mode(models.FieldColorModeId.THRESHOLDS))
    )
    return _dressed(panel, title, text, asks, to).span(4).height(4)


def distribution(
    title: str, text: str, unit: Unit, limit: Limit, ask: Ask, to: str = "", width: int = 12
) -> heatmap.Panel:
    """A heatmap of a histogram's buckets over time; arguments as in :func:`lines`."""
    panel = (
        heatmap.Panel()
        .calculate(False)
        .color(heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Turbo").steps(64))
        .y_axis(heatmap.YAxisConfig().unit(unit))
        .cell_gap(1)
        .show_legend()
        .unit(unit)
        .thresholds(_steps(limit))
    )
    return _dressed(panel, title, text, [ask], to, PromQueryFormat.HEATMAP).span(width).height(_HEIGHT + 2)


def _dressed(
    panel: _Some,
    title: str,
    text: str,
    asks: Sequence[Ask],
    to: str,
    form: PromQueryFormat = PromQueryFormat.TIME_SERIES,
) -> _Some:
    panel.title(title).description(text).datasource(SOURCE)
    for letter, ask in zip("ABCDEFGH", asks, strict=False):
        query = prometheus.Dataquery().expr(here(ask.expression)).legend_format(ask.legend)
        query.ref_id(letter).range().format(form).exemplar(ask.exemplars).datasource(SOURCE)
        panel.with_target(query)
    if to:
        url = f"/d/{to}?${{__url_time_range}}&${{instance:queryparam}}"
        panel.links([dashboard.DashboardLink(TITLES[to]).type(models.DashboardLinkType.LINK).url(url)])
    return panel


def _steps(limit: Limit) -> dashboard.ThresholdsConfig:
    warn, bad = limit.warn, limit.bad
    if limit.low:
        colours = [(None, "red"), (bad, "orange"), (warn, "green")]
    else:
        colours = [(None, "green"), (warn, "orange"), (bad, "red")]
    steps = [models.Threshold(value, colour) for value, colour in colours]
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)


Panels = Sequence[timeseries.Panel | stat.Panel | heatmap.Panel]


def board(uid: str, text: str, rows: Sequence[tuple[str, Panels]]) -> models.Dashboard:
    """A whole dashboard: rows with a title each, the variable ``instance``, links to the others."""
    made = (
        dashboard.Dashboard(f"Certosa: {TITLES[uid]}")
        .uid(uid)
        .description(text)
        .tags(["certosa"])
        .timezone("browser")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .time("now-3h", "now")
        .refresh("30s")
        .with_variable(_instance())
        .link(
            dashboard.DashboardLink("Certosa")
            .type(models.DashboardLinkType.DASHBOARDS)
            .tags(["certosa"])
            .include_vars(True)
            .keep_time(True)
        )
    )
    number_ = 0
    for title, panels in rows:
        number_ += 1
        made.with_row(dashboard.Row(title).id(number_))
        for panel in panels:
            number_ += 1
            made.with_panel(panel.id(number_))
    return made.build()


def _instance() -> dashboard.QueryVariable:
    every = models.VariableOption(selected=True, text="All", value="$__all")
    return (
        dashboard.QueryVariable("instance")
        .label("Server")
        .description("Which servers to look at; numbers of several are added up.")
        .query("label_values(certosa_process_up, instance)")
        .datasource(SOURCE)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .include_all(True)
        .all_value(".*")
        .multi(True)
        .current(every)
    )
