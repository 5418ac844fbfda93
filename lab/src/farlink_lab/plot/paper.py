"""The throughput profiles as a figure for a paper: SVG and PDF, by matplotlib."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure

from farlink_lab.prediction import limit_curve

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from matplotlib.axes import Axes

    from farlink_lab.findings import Findings
    from farlink_lab.plot.palette import Look

# Inches, of one panel: a column and a half of most journals.
PANEL = (5.2, 3.7)
_TITLES = {"size": "Fixed size", "duration": "Fixed duration"}
_LATE = "hollow: the emulator was late in every run"
PAPER_STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    # The same data give the same file.
    "svg.hashsalt": "farlink",
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
}


def write_paper_figures(findings: Findings, looks: Mapping[str, Look], *, svg: Path, pdf: Path) -> None:
    """Writes the profiles of each mode, side by side and never mixed, to both files; there is at least one.

    Raises:
        OSError: where a file cannot be written.
    """
    modes = [mode for mode in ("size", "duration") if findings.of_mode(mode)]
    with mpl.rc_context(PAPER_STYLE):
        figure = Figure(figsize=(PANEL[0] * len(modes), PANEL[1]), layout="constrained")
        panels = figure.subplots(1, len(modes), squeeze=False)[0]
        for panel, mode in zip(panels, modes, strict=True):
            _draw(panel, findings, mode, looks)
        for path in (svg, pdf):
            write_figure(figure, path)


def write_figure(figure: Figure, path: Path) -> None:
    """Replaces the file whole, in the format that its name ends in.

    Raises:
        OSError: where it cannot be written.
        ValueError: where no such format is known.
    """
    kind = path.suffix[1:].lower()
    # No time stamp: the same numbers give the same file.
    date = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(kind, {})
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        figure.savefig(beside, format=kind, metadata=date)
        beside.replace(path)
    except OSError as error:
        # Under the name that it was to have.
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink()


def _draw(panel: Axes, findings: Findings, mode: str, looks: Mapping[str, Look]) -> None:
    found = findings.of_mode(mode)
    drawn: set[tuple[float, float | None]] = set()
    for profile in found:
        curve = limit_curve(profile)
        if curve is not None and (profile.amount, profile.capacity_bps) not in drawn:
            drawn.add((profile.amount, profile.capacity_bps))
            name = f"limit of {profile.amount_shown}"
            panel.plot(1e3 * curve.rtt_s, curve.throughput_bps / 1e9, ":", color="#444444", lw=1, label=name)
    for profile in found:
        look, medians = looks[profile.label], profile.median_bps
        for rtt, values, late in zip(profile.rtt_s, profile.throughput_bps, profile.late, strict=True):
            every = [1e3 * rtt] * len(values)
            fill = "none" if late else look.colour
            panel.plot(every, values / 1e9, look.paper_symbol, color=look.colour, mfc=fill, ms=2.5, alpha=0.4)
        panel.errorbar(
            1e3 * profile.rtt_s,
            medians / 1e9,
            yerr=[(medians - profile.low_bps) / 1e9, (profile.high_bps - medians) / 1e9],
            color=look.colour,
            ls=look.paper_dash,
            marker=look.paper_symbol,
            ms=5,
            lw=1.4,
            elinewidth=0.9,
            capsize=2,
            label=profile.name,
        )
        hollow: Any = {"mfc": "white", "ms": 5, "ls": "none", "zorder": 3}
        late_ms, late_gbps = 1e3 * profile.rtt_s[profile.late], medians[profile.late] / 1e9
        panel.plot(late_ms, late_gbps, marker=look.paper_symbol, color=look.colour, **hollow)
    if any(profile.late_points for profile in found):
        panel.plot([], [], marker="o", color="#444444", mfc="white", ms=5, ls="none", label=_LATE)
    panel.set_title(_TITLES[mode], loc="left", fontsize=10)
    panel.set_xlabel("RTT, ms")
    panel.set_ylabel("throughput, Gb/s")
    panel.set_xscale("log")
    rtts = sorted({float(1e3 * rtt) for profile in found for rtt in profile.rtt_s})
    panel.set_xticks(rtts, [f"{rtt:g}" for rtt in rtts])
    panel.minorticks_off()
    panel.set_ylim(bottom=0)
    for text in panel.legend().get_texts():
        # Labels are the user's: dollars in them are no mathematics.
        text.set_parse_math(False)
