"""The map of winners, as plotly's JSON."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from farlink_lab.plot.figures import ms
from farlink_lab.plot.palette import COLOURS
from farlink_lab.quantity import show_rate, show_size, show_time

if TYPE_CHECKING:
    from farlink_lab.plot.figures import Figure
    from farlink_lab.winners import Winners

# More than there are colours share one: they win least often.
MOST_SHOWN = len(COLOURS) - 1
_OTHERS = "others"
_BEYOND = "<br>extrapolated: it was not measured on both sides of this RTT"


def winners_figure(found: Winners) -> Figure:
    """Cells of RTT and size in the colour of the configuration that wins there."""
    names = [escape(choice.name) for choice in found.choices]
    shown = len(names) if len(names) <= len(COLOURS) else MOST_SHOWN
    words = [*names[:shown], *([_OTHERS] if shown < len(names) else [])]
    colours = COLOURS[: len(words)]
    cells = [[min(int(one), shown) for one in row] for row in found.winner]
    texts = [
        [
            f"{show_size(float(f'{size:.2g}'))} at {show_time(float(f'{rtt:.3g}'))}: "
            f"{names[found.winner[row, column]]}"
            f"<br>should reach {show_rate(found.throughput_bps[row, column])}"
            f"{_as_good(int(found.as_good[row, column]))}"
            f"{_BEYOND if found.extrapolated[row, column] else ''}"
            for column, rtt in enumerate(found.rtt_s)
        ]
        for row, size in enumerate(found.size_bytes)
    ]
    traces: list[dict[str, Any]] = [
        {
            "type": "heatmap",
            "name": "winners",
            "meta": {"label": ""},
            "x": ms(found.rtt_s),
            "y": [float(f"{size:.4g}") for size in found.size_bytes],
            "z": cells,
            "zmin": -0.5,
            "zmax": len(words) - 0.5,
            "colorscale": _steps(colours),
            "showscale": False,
            "hovertext": texts,
            "hoverinfo": "text",
        }
    ]
    rows, columns = np.nonzero(found.extrapolated)
    if len(rows):
        traces.append(
            {
                "type": "scatter",
                "name": "extrapolated",
                "meta": {"label": ""},
                "mode": "markers",
                "x": [float(value) for value in np.array(ms(found.rtt_s))[columns]],
                "y": [float(f"{size:.4g}") for size in found.size_bytes[rows]],
                "marker": {"color": "#666666", "symbol": "x-thin-open", "size": 4},
                "showlegend": True,
                "hoverinfo": "skip",
            }
        )
    traces += [
        {
            "type": "scatter",
            "name": word,
            "meta": {"label": ""},
            "mode": "markers",
            "x": [None],
            "y": [None],
            "marker": {"color": colour, "symbol": "square", "size": 11},
            "showlegend": True,
            "hoverinfo": "skip",
        }
        for word, colour in zip(words, colours, strict=True)
    ]
    ticks = [float(f"{power:g}") for power in (1e7, 1e8, 1e9, 1e10, 1e11, 1e12)]
    return {
        "data": traces,
        "layout": {
            "height": 460,
            "margin": {"l": 66, "r": 14, "t": 14, "b": 90},
            "hovermode": "closest",
            "showlegend": True,
            "legend": {"orientation": "h", "y": -0.2},
            "xaxis": {
                "title": {"text": "RTT, ms"},
                "type": "log",
                "tickvals": ms(found.measured_s),
                "ticktext": [f"{value:g}" for value in ms(found.measured_s)],
            },
            "yaxis": {
                "title": {"text": "size"},
                "type": "log",
                "tickvals": ticks,
                "ticktext": [show_size(value) for value in ticks],
            },
            "meta": {"axes": False, "rtts": []},
        },
    }


def _as_good(count: int) -> str:
    if count == 1:
        return "<br>no other comes within 2%"
    return f"<br>{count - 1} other{'s' if count > 2 else ''} within 2% of that"


def _steps(colours: tuple[str, ...]) -> list[tuple[float, str]]:
    """A scale that has each colour for one whole number."""
    count = len(colours)
    return [
        (edge, colour)
        for index, colour in enumerate(colours)
        for edge in (index / count, (index + 1) / count)
    ]
