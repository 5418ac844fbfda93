"""The page: what was found, drawn and told, with everything it needs inside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from farlink_lab.error import LabError
from farlink_lab.findings import Findings, Refusal, find
from farlink_lab.places import RECORDS, records_of
from farlink_lab.plot.figures import cost_figure, health_figure, model_figure, profile_figure
from farlink_lab.plot.losses import loss_figure
from farlink_lab.plot.next_transfer import next_transfer_figure
from farlink_lab.plot.palette import looks
from farlink_lab.plot.paper import write_paper_figures
from farlink_lab.plot.regimes import phases_figure, regimes_figure
from farlink_lab.plot.traces import run_traces
from farlink_lab.plot.winners import winners_figure
from farlink_lab.records import BrokenLine, read_campaign
from farlink_lab.report.sections import Context, body
from farlink_lab.report.shell import page_text, unwritten, write_page
from farlink_lab.winners import winners

if TYPE_CHECKING:
    from pathlib import Path

# The page, and how figures beside it are called: those of another page have its name.
PAGE, FIGURES = "report.html", "profile"


class ReportError(LabError):
    """A report that cannot be made or written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was written, and what it says.

    Attributes:
        figures: For a paper, as SVG and as PDF; none where no run counts.
    """

    page: Path
    figures: tuple[Path, ...]
    findings: Findings
    broken: tuple[BrokenLine, ...]


def write_report(place: Path, *, out: Path | None = None, command: str = "") -> Report:
    """Writes the page and the paper figures of the records at `place`.

    Args:
        place: The directory where `records.jsonl` is, or a file of records.
        out: Where the page goes, and beside it the paper figures; `None` puts it beside the records.
        command: What the page says it was made by.

    Raises:
        LabError: where there are no records, or a file cannot be written.
    """
    records = records_of(place)
    reading = read_campaign(records)
    findings = find(reading)
    page = out or _page_beside(records)
    if page.suffix in (".svg", ".pdf"):
        raise ReportError(f"--out: {page} is what a figure beside it is called: name a page, as in {PAGE}")
    stem = FIGURES if page.name == PAGE else f"{page.stem}.{FIGURES}"
    svg, pdf = (page.with_name(f"{stem}.{kind}") for kind in ("svg", "pdf"))
    if any(path.exists() and path.samefile(records) for path in (page, svg, pdf)):
        raise ReportError(f"--out: {page}: the records are there: name another page, as in {PAGE}")
    figures = (svg, pdf) if findings.profiles else ()
    names = tuple(path.name for path in figures)
    text = page_of(findings, Context(place=place, records=records, command=command, figures=names))
    try:
        write_page(page, text)
        if figures:
            write_paper_figures(findings, looks(findings.labels), svg=svg, pdf=pdf)
        else:
            # Those of an earlier page are of what it no longer says.
            svg.unlink(missing_ok=True)
            pdf.unlink(missing_ok=True)
    except OSError as error:
        raise ReportError(unwritten(error, page=page, out=out)) from error
    return Report(page=page, figures=figures, findings=findings, broken=reading.broken)


def _page_beside(records: Path) -> Path:
    # The whole name, so that each file has a page of its own.
    return records.with_name(PAGE if records.name == RECORDS else f"{records.name}.html")


def page_of(findings: Findings, context: Context) -> str:
    """The whole page as text."""
    look = looks(findings.labels)
    figures: dict[str, Any] = {}
    for mode in ("size", "duration"):
        if findings.of_mode(mode):
            figures[f"profile-{mode}"] = profile_figure(findings, mode, look)
            figures[f"regimes-{mode}"] = regimes_figure(findings, mode, look)
            figures[f"next-{mode}"] = next_transfer_figure(findings, mode, look)
            figures[f"model-{mode}"] = model_figure(findings, mode, look)
    figures["phases"] = phases_figure(findings, look)
    figures["losses"] = loss_figure(findings.losses, look)
    won = winners(findings.records)
    figures["winners"] = None if isinstance(won, Refusal) else winners_figure(won)
    figures["cost"] = cost_figure(findings, look)
    figures["health"] = health_figure(findings, look)
    figures = {name: figure for name, figure in figures.items() if figure is not None}
    runs = run_traces(findings, look)
    return page_text(
        title="Throughput profiles",
        body=body(findings, look, runs, drawn=frozenset(figures), context=context, won=won),
        figures=figures,
        runs=runs,
    )
