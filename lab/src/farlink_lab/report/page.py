"""The page: what was found, drawn and told, with everything it needs inside it."""

from __future__ import annotations

import base64
import gzip
import json
import os
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any

from farlink_lab.error import LabError
from farlink_lab.findings import Findings, find
from farlink_lab.plot.figures import cost_figure, health_figure, model_figure, profile_figure
from farlink_lab.plot.losses import loss_figure
from farlink_lab.plot.palette import looks
from farlink_lab.plot.paper import write_paper_figures
from farlink_lab.plot.regimes import phases_figure, regimes_figure
from farlink_lab.plot.traces import run_traces
from farlink_lab.plot.winners import winners_figure
from farlink_lab.records import BrokenLine, read_campaign
from farlink_lab.report.sections import Context, body
from farlink_lab.winners import winners

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = "records.jsonl"
PAGE, PAPER_SVG, PAPER_PDF = "report.html", "profile.svg", "profile.pdf"


class ReportError(LabError):
    """A report that cannot be made or written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was written, and what it says."""

    page: Path
    svg: Path
    pdf: Path
    findings: Findings
    broken: tuple[BrokenLine, ...]


def write_report(directory: Path, *, out: Path | None = None, command: str = "") -> Report:
    """Writes the page and the paper figures of the campaign in `directory`.

    Args:
        directory: Where `records.jsonl` is; the paper figures go there.
        out: Where the page goes; `None` puts it beside the records.
        command: What the page says it was made by.

    Raises:
        LabError: where there are no records, or a file cannot be written.
    """
    reading = read_campaign(directory / RECORDS)
    findings = find(reading)
    page, svg, pdf = out or directory / PAGE, directory / PAPER_SVG, directory / PAPER_PDF
    text = page_of(findings, Context(directory=str(directory), command=command))
    try:
        write_paper_figures(findings, looks(findings.labels), svg=svg, pdf=pdf)
        _write(page, text)
    except OSError as error:
        raise ReportError(
            f"{error.filename or page}: {error.strerror}: make room, or name another --out"
        ) from error
    return Report(page=page, svg=svg, pdf=pdf, findings=findings, broken=reading.broken)


def page_of(findings: Findings, context: Context) -> str:
    """The whole page as text."""
    look = looks(findings.labels)
    figures: dict[str, Any] = {}
    for mode in ("size", "duration"):
        if findings.of_mode(mode):
            figures[f"profile-{mode}"] = profile_figure(findings, mode, look)
            figures[f"regimes-{mode}"] = regimes_figure(findings, mode, look)
            figures[f"model-{mode}"] = model_figure(findings, mode, look)
    figures["phases"] = phases_figure(findings, look)
    figures["losses"] = loss_figure(findings.losses, look)
    won = winners(findings.records)
    figures["winners"] = None if won is None else winners_figure(won)
    figures["cost"] = cost_figure(findings, look)
    figures["health"] = health_figure(findings, look)
    figures = {name: figure for name, figure in figures.items() if figure is not None}
    runs = run_traces(findings, look)
    data = json.dumps({"figures": figures, "runs": runs}, separators=(",", ":"), allow_nan=False)
    return Template(_resource("page.html")).substitute(
        title="Throughput profiles",
        style=_resource("page.css"),
        body=body(findings, look, runs, drawn=frozenset(figures), context=context, won=won),
        plotly=_packed_plotly(),
        # Within a script element only "<" could end it early.
        data=data.replace("<", "\\u003c"),
        script=_resource("page.js"),
    )


def _resource(name: str) -> str:
    return files("farlink_lab.report").joinpath(name).read_text(encoding="utf-8")


@cache
def _packed_plotly() -> str:
    """The drawing library: 4.8 MB of script as 2 MB of text, unpacked by the browser."""
    library = files("plotly").joinpath("package_data", "plotly.min.js").read_bytes()
    # No time stamp: the same records give the same page.
    return base64.b64encode(gzip.compress(library, compresslevel=9, mtime=0)).decode("ascii")


def _write(path: Path, text: str) -> None:
    """Replaces the file whole: who reads it meanwhile sees the old page or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
