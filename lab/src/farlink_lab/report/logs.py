"""The report of transfer logs: one page for a planner, made as that of a campaign is."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from farlink_lab.error import LabError
from farlink_lab.logs import chart, circuits, sessions, telling
from farlink_lab.logs.checking import KINDS, agreeing
from farlink_lab.logs.importing import NOTES
from farlink_lab.logs.planner.planning import planned
from farlink_lab.logs.planner.provider import Terms
from farlink_lab.logs.store import REFUSED, read_ledger
from farlink_lab.logs.summary import COLUMNS
from farlink_lab.logs.transfer import LogError
from farlink_lab.logs.uneven import uneven, verdict
from farlink_lab.logs.variance.alike import Choice
from farlink_lab.plot.chart import page_figure
from farlink_lab.quantity import show_count, show_rate, show_size, show_time
from farlink_lab.report import markup
from farlink_lab.report.shell import page_text, unwritten, write_page

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from farlink_lab.logs.chart import Chart
    from farlink_lab.logs.engine import Logs
    from farlink_lab.logs.telling import Grid
    from farlink_lab.logs.variance.counters import Counters

PAGE = "report.html"
# Of the page; the verbs ask about others.
GAP_S = 60.0
HOLD_S = 60.0
UNIT = "MB"


def write_log_report(
    logs: Logs, directory: Path, *, out: Path | None, counters: Counters | None, zone: str, seed: int
) -> Path:
    """Writes the page, beside the transfers where `out` says nothing else; where it lies.

    Raises:
        LabError: where it cannot be written.
    """
    page = out or directory / PAGE
    drawn: list[Chart] = []
    parts = [
        _imported(directory),
        _section("Sessions and circuits", lambda: _circuits(logs, drawn)),
        _section("Policies", lambda: _policies(logs, drawn)),
        _section("Unevenness", lambda: _unevenness(logs, drawn, counters=counters, zone=zone, seed=seed)),
    ]
    text = page_text(
        title="Transfer logs",
        body="\n".join([f"<h1>Transfer logs: {escape(directory.name)}</h1>", *parts]),
        figures={each.identity: page_figure(each) for each in drawn},
    )
    try:
        write_page(page, text)
    except OSError as error:
        raise LabError(unwritten(error, page=page, out=out)) from error
    return page


def _section(title: str, told: Callable[[], list[str]]) -> str:
    """A section; where an analysis has no answer, its reason stands in it."""
    try:
        parts = told()
    except LogError as error:
        parts = [markup.paragraph(str(error), kind="warning")]
    return "\n".join([f"<section><h2>{escape(title)}</h2>", *parts, "</section>"])


def _imported(directory: Path) -> str:
    ledger = read_ledger(directory)
    kinds: dict[str, int] = {}
    for source in ledger.sources:
        for name, count in (*source.refused.items(), *source.notes.items()):
            kinds[name] = kinds.get(name, 0) + count
    lines = sum(source.lines for source in ledger.sources)
    logs = show_count(len(ledger.sources), "log")
    said = [f"{show_count(ledger.rows, 'transfer')}, of {show_count(lines, 'line')} of {logs}."]
    for noun, counted in (("line", KINDS), ("transfer", NOTES)):
        said += [
            f"{show_count(kinds[name], noun)} {agreeing(kinds[name], words)}."
            for name, words in counted.items()
            if name in kinds
        ]
    if ledger.duplicates:
        said.append(f"{show_count(ledger.duplicates, 'duplicate')}, each kept once.")
    if any(kind in kinds for kind in KINDS):
        said.append(f"Refused lines are in {REFUSED} beside the transfers.")
    return "\n".join(["<section><h2>What was imported</h2>", markup.items(said), "</section>"])


def _circuits(logs: Logs, drawn: list[Chart]) -> list[str]:
    gaps = circuits.GAPS_S
    found = sessions.gather(logs, gaps_s=[*gaps, *circuits.MORE_GAPS_S, GAP_S])
    throughput = sessions.transfer_throughput(logs, found)
    table = circuits.share_table(logs, found, rate_bps=throughput.q3)
    base = circuits.Case(
        gap_s=GAP_S, setup_s=circuits.SETUPS_S[0], factor=circuits.FACTOR, rate_bps=throughput.q3
    )
    moved = circuits.sensitivity(logs, found, throughput=throughput, base=base)
    summary = sessions.summaries(logs, found, gaps_s=[GAP_S])[0]
    today = next(each for each in table if each.gap_s == GAP_S and each.setup_s == circuits.SETUPS_S[0])
    drawn += [
        chart.session_chart(logs, found, gaps_s=gaps, min_bytes=0),
        chart.circuit_chart(table),
    ]
    return [
        markup.items(
            [
                (
                    f"{summary.sessions:,} sessions of {summary.transfers:,} transfers, with gaps of at most "
                    f"{show_time(GAP_S)}."
                ),
                (
                    f"With a setup of {show_time(today.setup_s)}, {telling.share(today.of_sessions)} of them "
                    f"are long enough for a dynamic circuit; they have {telling.share(today.of_transfers)} "
                    f"of the transfers and {telling.share(today.of_bytes)} of the bytes."
                ),
                *telling.left_out_lines(found.left_out),
            ],
            kind="headlines",
        ),
        _table(telling.session_grid(summary, UNIT)),
        markup.paragraph(f"Sizes in {telling.unit_said(UNIT)}."),
        _figure(drawn[-2]),
        markup.paragraph(
            "A session is long enough where it would last ten times the setup or more, at "
            f"{show_rate(throughput.q3)}, the third quartile of transfer throughput: a high rate, which "
            "makes sessions short and the answer careful."
        ),
        _table(telling.share_grid(table)),
        _figure(drawn[-1]),
        *(
            markup.paragraph(f"With another {name}:") + _table(telling.moved_grid(name, group))
            for name, group in moved.items()
        ),
    ]


def _policies(logs: Logs, drawn: list[Chart]) -> list[str]:
    rate = sessions.transfer_throughput(logs).q3
    terms = Terms(capacity_bps=float("inf"), rate_bps=rate, setup_s=circuits.SETUPS_S[0], hold_s=HOLD_S)
    plan = planned(logs, terms, gap_s=GAP_S, factor=circuits.FACTOR)
    drawn.append(chart.plan_chart(plan.outcomes))
    parts = [
        markup.paragraph(
            f"The log against a service of circuits of {show_rate(rate)} without a limit of capacity, set up "
            f"in {show_time(terms.setup_s)} and held for {show_time(HOLD_S)} when idle; sessions that are "
            "long enough ask. farlink lab logs plan answers for other terms."
        ),
        _table(telling.outcome_grid(plan.outcomes)),
        _figure(drawn[-1]),
    ]
    if not plan.months:
        return [*parts, markup.paragraph(telling.ONE_MONTH)]
    drawn.append(chart.month_chart(plan.months))
    return [*parts, _table(telling.month_grid(plan.months)), _figure(drawn[-1])]


def _unevenness(
    logs: Logs, drawn: list[Chart], *, counters: Counters | None, zone: str, seed: int
) -> list[str]:
    found = uneven(logs, Choice(), counters=counters, zone=zone, seed=seed)
    spread, group = found.spread, found.group
    drawn.append(chart.variance_chart(found))
    parts = [
        markup.items(
            [
                (
                    f"{group.of:,} transfers are alike: {show_size(group.low_bytes)} to "
                    f"{show_size(group.high_bytes)} on one path. Half of them had {show_rate(spread.q1)} to "
                    f"{show_rate(spread.q3)}: an IQR of {show_rate(spread.spread)}."
                ),
                verdict(found),
            ],
            kind="headlines",
        ),
        _table((["", *COLUMNS], [["throughput, Mb/s", *telling.cells(spread.scaled(1e-6))]])),
        _figure(drawn[-1]),
    ]
    if found.ranking.factors:
        drawn.append(chart.factor_chart(found))
        parts += [_table(telling.factor_grid(found.ranking.factors)), _figure(drawn[-1])]
    if found.link is not None:
        parts.append(_table(telling.link_grid(found.link.overall, found.link.quartiles)))
    return parts


def _table(grid: Grid) -> str:
    head, rows = grid
    return markup.table(head, [markup.row([markup.cell(cell) for cell in row]) for row in rows])


def _figure(drawn: Chart) -> str:
    return markup.figure(drawn.identity, caption=drawn.caption)
