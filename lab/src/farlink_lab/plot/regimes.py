"""Figures of what a profile is made of: its regimes, and the two phases of its runs."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from farlink_lab.findings import Refusal
from farlink_lab.plot.figures import all_rtts, figure_of, gbps, ms, trace_of
from farlink_lab.prediction import ramp_up_curve
from farlink_lab.quantity import show_rate, show_time
from farlink_lab.regimes import branches, stretches
from farlink_lab.words import regime_clause

if TYPE_CHECKING:
    from collections.abc import Mapping

    from farlink_lab.findings import Array, Findings
    from farlink_lab.plot.figures import Figure, Trace
    from farlink_lab.plot.palette import Look
    from farlink_lab.profile import Profile
    from farlink_lab.regimes import Regimes

# ColorBrewer's PuOr, told apart by the colour-blind, and no colour of a configuration.
BEND_COLOURS = {"concave": "#5E3C99", "convex": "#E66101", "straight": "#4D4D4D", "undecided": "#B3B3B3"}
# Pixels of a configuration's row in the strip.
ROW_HEIGHT = 26


def regimes_figure(findings: Findings, mode: str, looks: Mapping[str, Look]) -> Figure | None:
    """Means and the profile as it was judged, coloured by its bends; beneath, a row of bends a configuration.

    `None` where no profile of the mode has a regime.
    """
    known = [
        (profile, found)
        for profile in findings.of_mode(mode)
        if not isinstance(found := findings.regimes[profile.key], Refusal)
    ]
    if not known:
        return None
    traces: list[Trace] = []
    for row, (profile, found) in enumerate(known):
        band = findings.bands.get(profile.key)
        traces += [*_judged(profile, found, looks[profile.label], band), *_row(-row, profile, found)]
        traces.append(_mark(-row, profile, looks[profile.label]))
    figure = figure_of(
        traces,
        rtts=all_rtts([profile for profile, _ in known]),
        y_title="throughput, Gb/s",
        axes=True,
    )
    strip = ROW_HEIGHT * len(known) + 20
    height = 380 + strip
    figure["layout"] |= {"height": height}
    figure["layout"]["yaxis"]["domain"] = [(strip + 30) / height, 1]
    figure["layout"]["xaxis"]["anchor"] = "y2"
    figure["layout"]["yaxis2"] = {
        "domain": [0, strip / height],
        "anchor": "x",
        "range": [0.7 - len(known), 0.7],
        "showticklabels": False,
        "showgrid": False,
        "fixedrange": True,
    }
    return figure


def phases_figure(findings: Findings, looks: Mapping[str, Look]) -> Figure | None:
    """T_R and, beneath, θ_S against RTT; `None` where no samples tell the phases."""
    known = [(profile, at) for profile in findings.profiles if (at := findings.phases_at[profile.key])]
    if not known:
        return None
    traces: list[Trace] = []
    for profile, found in known:
        look, name = looks[profile.label], escape(profile.name)
        x = ms([at.rtt_s for at in found])
        late = set(profile.rtt_s[profile.late].tolist())
        texts = [
            f"{name}<br>{show_time(at.rtt_s)}: ramp-up {show_time(at.ramp_up_s)}, then "
            f"{show_rate(at.sustained_bps)}"
            for at in found
        ]
        shared = {
            "mode": "lines+markers",
            "x": x,
            "marker": {
                "color": look.colour,
                "symbol": [look.hollow if at.rtt_s in late else look.symbol for at in found],
                "size": 8,
            },
            "line": {"color": look.colour, "dash": look.dash, "width": 1.5},
            "hovertext": texts,
            "hoverinfo": "text",
        }
        traces += [
            {**trace_of(profile.label, name), **shared, "y": [round(at.ramp_up_s, 4) for at in found]},
            {
                **trace_of(profile.label, name),
                **shared,
                "y": gbps([at.sustained_bps for at in found]),
                "yaxis": "y2",
            },
        ]
        curve = ramp_up_curve(profile)
        if curve is not None:
            traces.append(
                {
                    **trace_of(profile.label, f"{name}: model"),
                    "mode": "lines",
                    "x": ms(curve[0]),
                    "y": [round(float(value), 4) for value in curve[1]],
                    "line": {"color": look.colour, "dash": "dot", "width": 1},
                    "hoverinfo": "skip",
                }
            )
    figure = figure_of(
        traces,
        rtts=all_rtts([profile for profile, _ in known]),
        y_title="ramp-up T_R, as it arrives, s",
        axes=True,
    )
    figure["layout"] |= {"height": 560}
    figure["layout"]["yaxis"]["domain"] = [0.55, 1]
    figure["layout"]["xaxis"]["anchor"] = "y2"
    figure["layout"]["yaxis2"] = {
        "title": {"text": "sustained θ_S, Gb/s"},
        "domain": [0, 0.45],
        "rangemode": "tozero",
        "anchor": "x",
    }
    return figure


def _judged(profile: Profile, found: Regimes, look: Look, band: Array | None) -> list[Trace]:
    name = escape(profile.name)
    text = f"{name}<br>{escape(regime_clause(found))}"
    lines: list[Trace] = [
        {
            **trace_of(profile.label, name),
            "mode": "lines",
            "x": ms(branch.rtt_s),
            "y": gbps(branch.throughput_bps),
            "line": {"color": BEND_COLOURS[branch.bend], "width": 3},
            "hovertext": text,
            "hoverinfo": "text",
        }
        for branch in branches(profile.rtt_s, found)
    ]
    symbols = [look.hollow if late else look.symbol for late in profile.late]
    means: Trace = {
        **trace_of(profile.label, name),
        "mode": "markers",
        "x": ms(profile.rtt_s),
        "y": gbps(profile.mean_bps),
        "marker": {"color": look.colour, "symbol": symbols, "size": 8},
        "hovertext": text,
        "hoverinfo": "text",
    }
    if band is not None:
        means["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": gbps(band[1] - profile.mean_bps),
            "arrayminus": gbps(profile.mean_bps - band[0]),
            "color": look.colour,
            "thickness": 1.2,
            "width": 4,
        }
    return [*lines, means]


def _row(y: int, profile: Profile, found: Regimes) -> list[Trace]:
    name = escape(profile.name)
    row: list[Trace] = [
        {
            **trace_of(profile.label, name),
            "mode": "lines",
            "x": ms(edges),
            "y": [y] * len(edges),
            "yaxis": "y2",
            "line": {"color": BEND_COLOURS[bend], "width": 10},
            "hovertext": f"{name}<br>{bend}",
            "hoverinfo": "text",
        }
        for bend, edges in stretches(profile.rtt_s, found.shape)
    ]
    if found.sigmoid is not None:
        at = found.sigmoid.transition_s
        low, high = found.transition_s or (at, at)
        text = f"{name}<br>{escape(regime_clause(found))}"
        row.append(
            {
                **trace_of(profile.label, name),
                "mode": "lines+markers",
                "x": ms([low, at, high]),
                "y": [y + 0.32] * 3,
                "yaxis": "y2",
                "line": {"color": "ink", "width": 2},
                "marker": {"color": BEND_COLOURS["undecided"], "symbol": "diamond", "size": [1, 11, 1]},
                "hovertext": text,
                "hoverinfo": "text",
            }
        )
    return row


def _mark(y: int, profile: Profile, look: Look) -> Trace:
    return {
        **trace_of(profile.label, escape(profile.name)),
        "mode": "markers",
        "x": ms(profile.rtt_s[:1]),
        "y": [y],
        "yaxis": "y2",
        "marker": {
            "color": look.colour,
            "symbol": look.symbol,
            "size": 11,
            "line": {"color": "white", "width": 1},
        },
        "hovertext": escape(profile.name),
        "hoverinfo": "text",
    }
