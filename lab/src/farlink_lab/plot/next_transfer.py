"""The intervals of the next transfer between measured RTTs, as plotly's JSON."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from farlink_lab.findings import Refusal
from farlink_lab.plot.figures import all_rtts, figure_of, gbps, ms, trace_of
from farlink_lab.quantity import show_rate, show_time

if TYPE_CHECKING:
    from collections.abc import Mapping

    from farlink_lab.confidence import Interval
    from farlink_lab.findings import Findings
    from farlink_lab.plot.figures import Figure, Trace
    from farlink_lab.plot.palette import Look
    from farlink_lab.profile import Profile


def next_transfer_figure(findings: Findings, mode: str, looks: Mapping[str, Look]) -> Figure | None:
    """A box for each gap between RTTs, which holds the next transfer; `None` where nothing can be said."""
    known = [
        (profile, found)
        for profile in findings.of_mode(mode)
        if not isinstance(found := findings.intervals[profile.key], Refusal)
    ]
    if not known:
        return None
    traces: list[Trace] = []
    for profile, found in known:
        look = looks[profile.label]
        traces += [_box(profile, gap, look) for gap in found]
        timely = ~profile.late
        traces.append(
            {
                **trace_of(profile.label, escape(profile.name)),
                "mode": "markers",
                "x": ms(profile.rtt_s[timely]),
                "y": gbps(profile.median_bps[timely]),
                "marker": {"color": look.colour, "symbol": look.symbol, "size": 7},
                "hovertext": [
                    f"{escape(profile.name)}<br>{show_time(rtt)}: median {show_rate(median)}"
                    for rtt, median in zip(profile.rtt_s[timely], profile.median_bps[timely], strict=True)
                ],
                "hoverinfo": "text",
            }
        )
    rtts = all_rtts([profile for profile, _ in known])
    return figure_of(traces, rtts=rtts, y_title="throughput, Gb/s", axes=True)


def _box(profile: Profile, gap: Interval, look: Look) -> Trace:
    left, right = ms([gap.from_s, gap.to_s])
    low, high = gbps([gap.low_bps, gap.high_bps])
    text = (
        f"{escape(profile.name)}<br>between {show_time(gap.from_s)} and {show_time(gap.to_s)}: "
        f"{show_rate(gap.low_bps)} to {show_rate(gap.high_bps)}, at least {int(100 * gap.claim)}%"
    )
    return {
        **trace_of(profile.label, escape(profile.name)),
        "mode": "lines",
        "x": [left, right, right, left, left],
        "y": [low, low, high, high, low],
        "fill": "toself",
        "opacity": 0.25,
        "line": {"color": look.colour, "dash": look.dash, "width": 1},
        "hoveron": "fills",
        "text": text,
        "hoverinfo": "text",
    }
