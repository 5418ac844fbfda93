"""Windows around single losses: of the whole run, and of one loss, each with its own window as measure."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from farlink_lab.quantity import show_time
from farlink_lab.single_loss import span_s

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from farlink_lab.plot.palette import Look
    from farlink_lab.single_loss import LossCourse

# A trace of more points is thinned out for the upper panel.
MOST_POINTS = 1500
# What stands before the loss, as a share of what stands after it.
LEAD = 0.08
HEIGHT = 640


def loss_figure(courses: Sequence[LossCourse], looks: Mapping[str, Look]) -> dict[str, Any] | None:
    """Windows of the runs above, of a single loss beneath; `None` with nothing to show."""
    if not courses:
        return None
    lead_s = LEAD * span_s(courses)
    traces: list[dict[str, Any]] = []
    for course in courses:
        look, name = looks[course.label], f"{escape(course.label)}, {show_time(course.rtt_s)}"
        line = {"color": look.colour, "dash": look.dash, "width": 1.5}
        shared = {"type": "scatter", "mode": "lines", "showlegend": False, "meta": {"label": course.label}}
        trace, shown = course.trace, course.shown
        step = max(1, -(-len(trace.t_s) // MOST_POINTS))
        near = (trace.t_s >= shown.noticed_s - lead_s) & (trace.t_s <= shown.end_s)
        traces += [
            {
                **shared,
                "name": name,
                "x": _rounded(trace.t_s[::step]),
                "y": _rounded(trace.segments[::step]),
                "line": line,
                "hovertemplate": f"{name}<br>%{{x:.2f}} s: %{{y:.0f}} segments<extra></extra>",
            },
            {
                **shared,
                "name": name,
                "x": _rounded(trace.t_s[near] - shown.noticed_s),
                "y": _rounded(100 * trace.segments[near] / shown.before),
                "xaxis": "x2",
                "yaxis": "y2",
                "line": {**line, "width": 2},
                "hovertemplate": f"{name}<br>%{{x:.2f}} s after the loss: %{{y:.1f}}%<extra></extra>",
            },
        ]
    return {
        "data": traces,
        "layout": {
            "height": HEIGHT,
            "margin": {"l": 58, "r": 14, "t": 14, "b": 48},
            "hovermode": "closest",
            "xaxis": {"title": {"text": "time since the first byte might leave, s"}, "anchor": "y"},
            "yaxis": {"title": {"text": "window, segments"}, "domain": [0.62, 1], "type": "log", "dtick": 1},
            "xaxis2": {"title": {"text": "time since the loss was noticed, s"}, "anchor": "y2"},
            "yaxis2": {"title": {"text": "window, % of that before"}, "domain": [0, 0.46], "anchor": "x2"},
            "meta": {"axes": False, "rtts": []},
        },
    }


def _rounded(values: np.ndarray[Any, np.dtype[np.float64]]) -> list[float]:
    return [float(f"{value:.5g}") for value in values]
