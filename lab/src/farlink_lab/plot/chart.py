"""Charts of numbers and words: for pages as plotly's JSON, for papers by matplotlib."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from farlink_lab.plot.palette import looks
from farlink_lab.plot.paper import PANEL, PAPER_STYLE, write_figure

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from farlink_lab.logs.chart import Chart


def page_figure(chart: Chart) -> dict[str, Any]:
    """The chart for a page."""
    look = looks([series.name for series in chart.series])
    traces: list[dict[str, Any]] = []
    for series in chart.series:
        own = look[series.name]
        trace: dict[str, Any] = {
            "type": "bar" if series.kind == "bars" else "scatter",
            "name": escape(series.name),
            "meta": {"label": ""},
            "x": [escape(each) if isinstance(each, str) else _short(each) for each in series.x],
            "y": [None if each is None else _short(each) for each in series.y],
            "showlegend": len(chart.series) > 1,
        }
        if series.kind == "bars":
            trace["marker"] = {"color": own.colour}
        elif series.kind == "line":
            trace |= {"mode": "lines", "line": {"color": own.colour, "dash": own.dash, "width": 2}}
        else:
            trace |= {"mode": "markers", "marker": {"color": own.colour, "size": 5, "opacity": 0.5}}
        traces.append(trace)
    words = any(series.kind == "bars" for series in chart.series)
    return {
        "data": traces,
        "layout": {
            "height": 420,
            "margin": {"l": 66, "r": 14, "t": 14, "b": 90},
            "hovermode": "closest",
            "barmode": "group",
            "showlegend": len(chart.series) > 1,
            "legend": {"orientation": "h", "y": -0.25},
            "xaxis": {
                "title": {"text": escape(chart.x_title)},
                "type": "category" if words else "log" if chart.x_log else "linear",
            },
            "yaxis": {"title": {"text": escape(chart.y_title)}, "type": "log" if chart.y_log else "linear"},
            "meta": {"axes": False, "rtts": []},
        },
    }


def write_chart(chart: Chart, path: Path) -> None:
    """Writes the chart to a file of the format that its name ends in: SVG, PDF or PNG.

    Raises:
        OSError: where it cannot be written.
        ValueError: where no such format is known.
    """
    with mpl.rc_context(PAPER_STYLE):
        figure = Figure(figsize=PANEL, layout="constrained")
        _draw(figure.add_subplot(), chart)
        write_figure(figure, path)


def _draw(panel: Axes, chart: Chart) -> None:
    look = looks([series.name for series in chart.series])
    bars = [series for series in chart.series if series.kind == "bars"]
    for series in chart.series:
        own = look[series.name]
        values = np.array([np.nan if each is None else each for each in series.y], dtype=np.float64)
        if series.kind == "bars":
            width = 0.8 / len(bars)
            places = np.arange(len(values)) + (bars.index(series) - (len(bars) - 1) / 2) * width
            panel.bar(places, values, width=width, color=own.colour, label=series.name)
            panel.set_xticks(range(len(values)), [str(each) for each in series.x])
        elif series.kind == "line":
            across = np.array(series.x, dtype=np.float64)
            panel.plot(across, values, own.paper_dash, color=own.colour, lw=1.4, label=series.name)
        else:
            across = np.array(series.x, dtype=np.float64)
            panel.plot(across, values, ".", color=own.colour, ms=3, alpha=0.5, label=series.name)
    if chart.x_log and not bars:
        panel.set_xscale("log")
    if chart.y_log:
        panel.set_yscale("log")
    panel.set_xlabel(chart.x_title)
    panel.set_ylabel(chart.y_title)
    if len(chart.series) > 1:
        panel.legend()


def _short(value: float) -> float:
    return float(f"{value:.6g}")
