"""The demonstration: a plan of at most eight minutes, its report, and a table in the terminal."""

from __future__ import annotations

from importlib.resources import as_file, files
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from farlink_lab import words
from farlink_lab.quantity import show_rate, show_time

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from farlink_lab.findings import Findings

# Beside a median that rests on late runs alone.
LATE_MARK = "*"


def demo_plan() -> AbstractContextManager[Path]:
    """The plan that comes with the lab, as a file."""
    return as_file(files("farlink_lab").joinpath("demo.toml"))


def profile_table(findings: Findings) -> Table:
    """Median throughput of each configuration at each RTT, the late ones with a mark."""
    table = Table(title="median throughput at each RTT", title_justify="left", title_style="bold")
    rtts = sorted({float(rtt) for profile in findings.profiles for rtt in profile.rtt_s})
    table.add_column("configuration")
    for rtt in rtts:
        table.add_column(show_time(rtt), justify="right")
    for profile in findings.profiles:
        at = {
            rtt: f"{show_rate(median)}{LATE_MARK if late else ''}"
            for rtt, median, late in zip(
                profile.rtt_s.tolist(), profile.median_bps.tolist(), profile.late, strict=True
            )
        }
        table.add_row(Text(profile.name), *(at.get(rtt, "–") for rtt in rtts))
    if findings.late_points:
        table.caption = (
            f"{LATE_MARK} late: the emulator fell behind in every run there, so it says as much of this "
            "machine as of the connection"
        )
        table.caption_justify = "left"
    return table


def sentences(findings: Findings) -> list[str]:
    """What the table shows: the report's own first sentences."""
    return words.headlines(findings)
