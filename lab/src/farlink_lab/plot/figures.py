"""Figures for pages, as plotly's JSON: the page gives them fonts, grid and ink of its own theme.

`meta.label` of a trace is its configuration, which the page's legend shows and hides everywhere at once.
Colours that the theme decides are written as `"ink"` and `"faint"`.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from farlink_lab.cost import cost
from farlink_lab.health import overrun_limit_s
from farlink_lab.prediction import limit_curve
from farlink_lab.profile import label_of
from farlink_lab.quantity import show_rate, show_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from farlink_lab.findings import Findings
    from farlink_lab.plot.palette import Look
    from farlink_lab.profile import Profile
    from farlink_lab.records import Record

Figure = dict[str, Any]
Trace = dict[str, Any]
Array = NDArray[np.float64]

# Lateness below the emulator's finest bucket is drawn there: a logarithmic axis has no zero.
LEAST_LATE_MS = 1e-4


def profile_figure(findings: Findings, mode: str, looks: Mapping[str, Look]) -> Figure:
    """Throughput against RTT of every configuration of a mode: medians, spread, every run, and the limit."""
    found = findings.of_mode(mode)
    traces = _limits(found)
    for profile in found:
        look, name = looks[profile.label], escape(profile.name)
        rtts, medians = ms(profile.rtt_s), profile.median_bps
        points = [
            (rtt, value, record)
            for rtt, group in zip(rtts, profile.records, strict=True)
            for record in group
            if (value := record.throughput_bps) is not None
        ]
        traces += [
            {
                **trace_of(profile.label, name),
                "mode": "markers",
                "x": [rtt for rtt, _, _ in points],
                "y": gbps([value for _, value, _ in points]),
                "marker": {
                    "color": look.colour,
                    "symbol": [look.hollow if record.overrun else look.symbol for _, _, record in points],
                    "size": 5,
                    "opacity": 0.4,
                },
                "hovertext": [_hover(name, record) for _, _, record in points],
                "hoverinfo": "text",
            },
            {
                **trace_of(profile.label, name),
                "mode": "lines+markers",
                "x": rtts,
                "y": gbps(medians),
                "line": {"color": look.colour, "dash": look.dash, "width": 2},
                "marker": {"color": look.colour, "symbol": _symbols(look, profile.late), "size": 9},
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": gbps(profile.high_bps - medians),
                    "arrayminus": gbps(medians - profile.low_bps),
                    "color": look.colour,
                    "thickness": 1.2,
                    "width": 4,
                },
                "hovertext": [
                    f"{name}<br>{show_time(rtt)}: median {show_rate(median)} of {len(values)}{_behind(late)}"
                    for rtt, median, values, late in zip(
                        profile.rtt_s, medians, profile.throughput_bps, profile.late, strict=True
                    )
                ],
                "hoverinfo": "text",
            },
        ]
    return figure_of(traces, rtts=all_rtts(found), y_title="throughput, Gb/s", axes=True)


def model_figure(findings: Findings, mode: str, looks: Mapping[str, Look]) -> Figure | None:
    """Medians against the model, with the residuals beneath; `None` with nothing to show."""
    found = [profile for profile in findings.of_mode(mode) if profile.key in findings.predictions]
    if not found:
        return None
    traces: list[Trace] = []
    for profile in found:
        look, prediction = looks[profile.label], findings.predictions[profile.key]
        name = escape(profile.name)
        marker = {"color": look.colour, "symbol": _symbols(look, profile.late), "size": 8}
        texts = [
            f"{name}<br>{show_time(rtt)}: {show_rate(measured)}<br>model {show_rate(model)}, "
            f"{100 * residual:+.1f}%{_behind(late)}"
            for rtt, measured, model, residual, late in zip(
                profile.rtt_s,
                profile.median_bps,
                prediction.at_rtts_bps,
                prediction.residual,
                profile.late,
                strict=True,
            )
        ]
        traces += [
            {
                **trace_of(profile.label, f"{name}: model"),
                "mode": "lines",
                "x": ms(prediction.curve.rtt_s),
                "y": gbps(prediction.curve.throughput_bps),
                "line": {"color": look.colour, "width": 1.5, "dash": look.dash},
                "hoverinfo": "skip",
            },
            {
                **trace_of(profile.label, name),
                "mode": "markers",
                "x": ms(profile.rtt_s),
                "y": gbps(profile.median_bps),
                "marker": marker,
                "hovertext": texts,
                "hoverinfo": "text",
            },
            {
                **trace_of(profile.label, f"{name}: residual"),
                "mode": "lines+markers",
                "x": ms(profile.rtt_s),
                "y": [round(100 * value, 3) for value in prediction.residual],
                "yaxis": "y2",
                "marker": marker,
                "line": {"color": look.colour, "width": 1, "dash": look.dash},
                "hovertext": texts,
                "hoverinfo": "text",
            },
        ]
    figure = figure_of(traces, rtts=all_rtts(found), y_title="throughput, Gb/s", axes=True)
    figure["layout"]["yaxis"]["domain"] = [0.36, 1]
    figure["layout"]["xaxis"]["anchor"] = "y2"
    figure["layout"]["yaxis2"] = {
        "title": {"text": "residual, %"},
        "domain": [0, 0.28],
        "zeroline": True,
        "anchor": "x",
    }
    figure["layout"]["height"] = 520
    return figure


def cost_figure(findings: Findings, looks: Mapping[str, Look]) -> Figure | None:
    """CPU seconds per GB of both ends against RTT; `None` where no record knows them."""
    traces: list[Trace] = []
    for profile in findings.profiles:
        look, name = looks[profile.label], escape(profile.name)
        rows = [
            (rtt, known, late)
            for rtt, group, late in zip(profile.rtt_s, profile.records, profile.late, strict=True)
            if (known := cost(group)) is not None
        ]
        if rows:
            traces.append(
                {
                    **trace_of(profile.label, name),
                    "mode": "lines+markers",
                    "x": ms([rtt for rtt, _, _ in rows]),
                    "y": [round(known.both, 5) for _, known, _ in rows],
                    "marker": {
                        "color": look.colour,
                        "symbol": _symbols(look, [late for _, _, late in rows]),
                        "size": 8,
                    },
                    "line": {"color": look.colour, "dash": look.dash, "width": 1.5},
                    "hovertext": [
                        f"{name}<br>{show_time(rtt)}: sender {known.sender:.3f}, receiver "
                        f"{known.receiver:.3f} s/GB{_behind(late)}"
                        for rtt, known, late in rows
                    ],
                    "hoverinfo": "text",
                }
            )
    if not traces:
        return None
    return figure_of(traces, rtts=all_rtts(findings.profiles), y_title="CPU seconds per GB", axes=True)


def health_figure(findings: Findings, looks: Mapping[str, Look]) -> Figure | None:
    """Lateness of the emulator's packets, run by run in the order they ran; `None` where it is unknown."""
    ordered = sorted(
        (record for record in findings.records if record.emulator is not None),
        key=lambda record: record.started,
    )
    if not ordered:
        return None
    numbers = list(range(1, len(ordered) + 1))
    traces: list[Trace] = [
        {
            **trace_of("", "limit"),
            "mode": "lines",
            "x": numbers,
            "y": [1e3 * overrun_limit_s(record.rtt_s or 0.0) for record in ordered],
            "line": {"color": "ink", "dash": "dash", "width": 1, "shape": "hvh"},
            "hoverinfo": "skip",
        }
    ]
    for label in findings.labels:
        rows = [(n, record) for n, record in zip(numbers, ordered, strict=True) if label_of(record) == label]
        look = looks[label]
        if rows:
            traces.append(
                {
                    **trace_of(label, escape(label)),
                    "mode": "markers",
                    "x": [number for number, _ in rows],
                    "y": [_late_ms(record) for _, record in rows],
                    "marker": {
                        "color": look.colour,
                        "symbol": ["x" if record.overrun else look.symbol for _, record in rows],
                        "size": [11 if record.overrun else 7 for _, record in rows],
                    },
                    "hovertext": [
                        f"run {number}: {_hover(escape(label), record)}<br>99% left at most "
                        f"{_late_ms(record):.3f} ms late{', overrun' if record.overrun else ''}"
                        for number, record in rows
                    ],
                    "hoverinfo": "text",
                }
            )
    figure = figure_of(traces, rtts=[], y_title="lateness (99%), ms", axes=False)
    figure["layout"]["xaxis"] = {"title": {"text": "run, in the order of the campaign"}}
    figure["layout"]["yaxis"]["type"] = "log"
    figure["layout"]["yaxis"].pop("rangemode")
    return figure


def _limits(found: Sequence[Profile]) -> list[Trace]:
    """One limit for each amount and capacity: configurations that share both share it."""
    drawn: dict[tuple[float, float | None], Profile] = {}
    for profile in found:
        drawn.setdefault((profile.amount, profile.capacity_bps), profile)
    traces: list[Trace] = []
    for profile in drawn.values():
        curve = limit_curve(profile)
        if curve is not None:
            traces.append(
                {
                    **trace_of("", f"limit of {profile.amount_shown}"),
                    "mode": "lines",
                    "x": ms(curve.rtt_s),
                    "y": gbps(curve.throughput_bps),
                    "line": {"color": "ink", "dash": "dot", "width": 1.5},
                    "hovertext": f"limit of {profile.amount_shown}",
                    "hoverinfo": "text",
                }
            )
    return traces


def _symbols(look: Look, late: Iterable[np.bool_]) -> list[str]:
    return [look.hollow if hollow else look.symbol for hollow in late]


def _behind(late: np.bool_) -> str:
    return "<br>late: the emulator fell behind" if late else ""


def trace_of(label: str, name: str) -> Trace:
    """What every trace of a figure has."""
    return {"type": "scatter", "name": name, "meta": {"label": label}, "showlegend": False}


def figure_of(traces: list[Trace], *, rtts: list[float], y_title: str, axes: bool) -> Figure:
    """A figure against RTT; `axes`: whether the page's switches of the axes apply to it."""
    return {
        "data": traces,
        "layout": {
            "height": 420,
            "margin": {"l": 58, "r": 14, "t": 14, "b": 48},
            "hovermode": "closest",
            "xaxis": {"title": {"text": "RTT, ms"}, "type": "linear"},
            "yaxis": {"title": {"text": y_title}, "type": "linear", "rangemode": "tozero"},
            # Whether the page's switches of the axes apply, and the ticks of its logarithmic RTT axis.
            "meta": {"axes": axes, "rtts": rtts},
        },
    }


def _hover(name: str, record: Record) -> str:
    rtt = show_time(record.rtt_s) if record.rtt_s is not None else "RTT unknown"
    rate = show_rate(record.throughput_bps) if record.throughput_bps is not None else "no throughput"
    return f"{name}<br>{rtt}: {rate}"


def _late_ms(record: Record) -> float:
    late = record.emulator.late_p99_s if record.emulator is not None else 0.0
    return round(max(1e3 * late, LEAST_LATE_MS), 6)


def all_rtts(found: Sequence[Profile]) -> list[float]:
    """Every RTT of the profiles, ms, growing."""
    rtts = [profile.rtt_s for profile in found]
    return ms(np.unique(np.concatenate(rtts))) if rtts else []


def ms(rtt_s: Array | Sequence[float]) -> list[float]:
    """Seconds as milliseconds, to seven digits."""
    return [float(f"{1e3 * rtt:.7g}") for rtt in rtt_s]


def gbps(rates_bps: Array | Sequence[float]) -> list[float]:
    """Bit/s as Gb/s, to six digits."""
    return [float(f"{rate / 1e9:.6g}") for rate in rates_bps]
