"""Analyses told in lines of text: tables whose columns stand under their names."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from farlink_lab.logs.mapping import SIZE_UNITS
from farlink_lab.logs.summary import COLUMNS
from farlink_lab.logs.uneven import verdict
from farlink_lab.quantity import show_count, show_rate, show_size, show_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from farlink_lab.logs.circuits import Share
    from farlink_lab.logs.feed import Feed, Topology
    from farlink_lab.logs.planner.prefixes import Month
    from farlink_lab.logs.planner.provider import Terms
    from farlink_lab.logs.planner.replay import Outcome
    from farlink_lab.logs.service import Decision
    from farlink_lab.logs.sessions import SessionSummary
    from farlink_lab.logs.summary import Summary
    from farlink_lab.logs.uneven import Uneven
    from farlink_lab.logs.variance.counters import Correlations
    from farlink_lab.logs.variance.factors import Factor

NOTHING = "–"
ONE_MONTH = "prefixes: the log is of one month, and there is none before it to learn from"

# The names of columns, and rows of as many cells.
Grid = tuple[list[str], list[list[str]]]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table: the first column to the left, the others to the right."""
    cells = [list(head), *map(list, rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    return [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]


def share(value: float | None) -> str:
    """A share as a percentage."""
    return NOTHING if value is None or math.isnan(value) else f"{100 * value:.1f}%"


def number(value: float) -> str:
    """A number of four digits that count, without an exponent."""
    return f"{value:,.0f}" if abs(value) >= 9999.5 else f"{value:.4g}"


def unit_said(unit: str) -> str:
    """A unit of sizes, and what it is."""
    return f"{unit} of {SIZE_UNITS[unit]:,} bytes"


def session_lines(
    found: Sequence[SessionSummary], *, throughput: Summary, left_out: int, unit: str
) -> list[str]:
    """Sessions of each gap, as the studies' tables have them, and transfers beneath."""
    said = []
    for each in found:
        said.append(
            f"gap {show_time(each.gap_s)}: {show_count(each.sessions, 'session')} of "
            f"{show_count(each.transfers, 'transfer')}"
        )
        if each.size_bytes is not None and each.duration_s is not None:
            said += table(*session_grid(each, unit))
        said.append("")
    said += [f"transfers: {throughput.count:,} of a duration"]
    said += table(["", *COLUMNS], [["throughput, Mb/s", *cells(throughput.scaled(1e-6))]])
    return [*said, f"sizes in {unit_said(unit)}", *left_out_lines(left_out)]


def session_grid(each: SessionSummary, unit: str) -> Grid:
    """The table of one gap."""
    rows = []
    if each.size_bytes is not None:
        rows.append([f"size, {unit}", *cells(each.size_bytes.scaled(1 / SIZE_UNITS[unit]))])
    if each.duration_s is not None:
        rows.append(["duration, s", *cells(each.duration_s)])
    if each.throughput_bps is not None:
        rows.append(["throughput, Mb/s", *cells(each.throughput_bps.scaled(1e-6))])
    return ["", *COLUMNS], rows


def left_out_lines(left_out: int) -> list[str]:
    """What is to be said of transfers that withhold an end."""
    if not left_out:
        return []
    if left_out == 1:
        return ["1 transfer names no source or no destination, and is in no session"]
    return [f"{left_out:,} transfers name no source or no destination, and are in no session"]


def circuit_lines(
    found: Sequence[Share], moved: Mapping[str, Sequence[Share]], *, rate_word: str, left_out: int
) -> list[str]:
    """The shares for each gap and setup, and what they hang on."""
    first = found[0]
    said = [f"rate {show_rate(first.rate_bps)} ({rate_word} of transfer throughput), factor {first.factor:g}"]
    said += table(*share_grid(found))
    for name, group in moved.items():
        said += ["", f"with another {name}:", *table(*moved_grid(name, group))]
    return [*said, *left_out_lines(left_out)]


def share_grid(found: Sequence[Share]) -> Grid:
    """Each gap and setup."""
    rows = [
        [
            show_time(each.gap_s),
            show_time(each.setup_s),
            show_size(each.threshold_bytes),
            f"{each.sessions:,}",
            share(each.of_sessions),
            share(each.of_transfers),
            share(each.of_bytes),
        ]
        for each in found
    ]
    return ["gap", "setup", "at least", "sessions", "long enough", "transfers", "bytes"], rows


def moved_grid(name: str, found: Sequence[Share]) -> Grid:
    """The shares with one parameter moved."""
    rows = [
        [
            _moved(name, each),
            show_size(each.threshold_bytes),
            share(each.of_sessions),
            share(each.of_transfers),
            share(each.of_bytes),
        ]
        for each in found
    ]
    return [name, "at least", "long enough", "transfers", "bytes"], rows


def _moved(name: str, each: Share) -> str:
    return {
        "factor": f"{each.factor:g}",
        "setup": show_time(each.setup_s),
        "rate": show_rate(each.rate_bps),
        "gap": show_time(each.gap_s),
    }[name]


def plan_lines(outcomes: Sequence[Outcome], months: Sequence[Month], terms: Terms) -> list[str]:
    """What each policy came to, and what prefixes caught month by month."""
    capacity = (
        "unlimited capacity"
        if math.isinf(terms.capacity_bps)
        else f"{show_rate(terms.capacity_bps)} of capacity"
    )
    said = [
        (
            f"circuits of {show_rate(terms.rate_bps)}, {capacity}, setup {show_time(terms.setup_s)}, "
            f"held {show_time(terms.hold_s)}"
        )
    ]
    said += table(*outcome_grid(outcomes))
    if months:
        return [*said, "", "prefixes of the month before:", *table(*month_grid(months))]
    return [*said, "", ONE_MONTH]


def outcome_grid(outcomes: Sequence[Outcome]) -> Grid:
    """What each policy came to."""
    head = ["policy", "asked", "rejected", "reused", "circuits", "at once", "hours", "utilisation", "carried"]
    rows = [
        [
            each.policy,
            f"{each.sessions:,}",
            f"{each.rejected:,}",
            f"{each.reused:,}",
            f"{each.circuits:,}",
            f"{each.most_circuits:,}",
            number(each.circuit_hours),
            share(each.utilisation),
            share(each.carried_share),
        ]
        for each in outcomes
    ]
    return head, rows


def month_grid(months: Sequence[Month]) -> Grid:
    """What prefixes caught month by month."""
    rows = [
        [
            month.month,
            f"{month.learnt:,}",
            f"{month.alpha_flows:,}",
            show_size(month.alpha_bytes),
            share(month.caught_share),
        ]
        for month in months
    ]
    return ["month", "learnt", "alpha flows", "alpha bytes", "caught"], rows


def variance_lines(found: Uneven) -> list[str]:
    """The spread, what was predicted, the factors, and what is to be concluded."""
    group, spread = found.group, found.spread.scaled(1e-6)
    source, destination = (end or "(withheld)" for end in group.path)
    sampled = "" if group.of == len(group.bytes) else f", a sample of {len(group.bytes):,}"
    said = [
        (
            f"{group.of:,} transfers{sampled} of {show_size(group.low_bytes)} to "
            f"{show_size(group.high_bytes)}, {source} to {destination}"
        )
    ]
    said += table(["", *COLUMNS, "IQR"], [["throughput, Mb/s", *cells(spread), number(spread.spread)]])
    beside = found.concurrency
    said += [
        "",
        (
            f"concurrent transfers: {number(float(beside.at_once.mean()))} at once on the mean; equal shares "
            f"of {show_rate(beside.server_bps)} correlate with throughput by "
            f"{_correlation(beside.correlation)}"
        ),
    ]
    if found.link is not None:
        said += ["", *link_lines(found.link.overall, found.link.quartiles)]
        if found.link.left_out:
            said.append(f"{found.link.left_out:,} lines of counters are no interval and were left out")
    ranking = found.ranking
    if ranking.factors:
        said += [
            "",
            f"factors ({ranking.transfers:,} transfers of {ranking.sessions:,} sessions; 95% intervals):",
        ]
        said += table(*factor_grid(ranking.factors))
    if ranking.constant:
        said.append(f"the same in all of them: {', '.join(ranking.constant)}")
    return [*said, verdict(found)]


def factor_grid(factors: Sequence[Factor]) -> Grid:
    """How much each factor explains, and does."""
    rows = [
        [
            factor.name,
            share(factor.share[1]),
            f"{share(factor.share[0])} to {share(factor.share[2])}",
            f"×{factor.effect[1]:.2f}",
            f"{factor.effect[0]:.2f} to {factor.effect[2]:.2f}",
            f"{factor.chance:.3f}",
            "beyond chance" if factor.clear else "not clear",
        ]
        for factor in factors
    ]
    return ["factor", "explains", "interval", "effect", "interval", "chance", ""], rows


def link_lines(overall: Correlations, quartiles: Sequence[Correlations]) -> list[str]:
    """What the link's counters say, overall and by quartile of throughput."""
    said = table(*link_grid(overall, quartiles))
    if overall.exceeding:
        said.append(
            f"in {overall.exceeding:,} intervals more was logged than the link carried: "
            "bytes are spread evenly over each transfer, or the clocks differ"
        )
    return said


def link_grid(overall: Correlations, quartiles: Sequence[Correlations]) -> Grid:
    """Correlations of logged bytes, overall and by quartile."""
    rows = [
        [
            name,
            f"{each.intervals:,}",
            share(each.logged_share),
            _correlation(each.with_total),
            _correlation(each.with_other),
        ]
        for name, each in [
            ("all", overall),
            *((f"quartile {n}", q) for n, q in enumerate(quartiles, start=1)),
        ]
    ]
    return ["link counters", "intervals", "logged", "with total", "with other traffic"], rows


def service_lines(feed: Feed, topology: Topology, decision: Decision) -> list[str]:
    """The feed, and the decision table."""
    said = [
        f"feed: {show_rate(feed.mean_bps)} on the mean, {show_rate(feed.peak_minute_bps)} in the peak minute"
    ]
    if feed.silent_share is not None:
        said.append(f"silences longer than 1 s: {share(feed.silent_share)} of the gaps between products")
    known = [
        (topology.hosts, "hosts"),
        (topology.senders, "senders"),
        (topology.receivers, "receivers"),
        (topology.fan_out, "the largest fan-out"),
    ]
    said.append("topology: " + ", ".join(f"{count} {what}" for count, what in known if count is not None))
    said.append(
        f"required of the sender without multicast: {topology.fan_out} × {show_rate(feed.peak_minute_bps)} = "
        f"{show_rate(decision.required_bps)}"
    )
    rows = [
        [
            verdict.service,
            verdict.fits,
            NOTHING if verdict.sender_bps is None else show_rate(verdict.sender_bps),
            verdict.reason,
        ]
        for verdict in decision.verdicts
    ]
    width = max(len(row[0]) for row in rows)
    said += [f"{row[0].ljust(width)}  {row[1]:<4}  {row[2]:>10}  {row[3]}" for row in rows]
    return [*said, f"take: {decision.chosen}"]


def cells(summary: Summary) -> list[str]:
    """The six numbers."""
    return [number(getattr(summary, name)) for name in COLUMNS]


def _correlation(value: float | None) -> str:
    return NOTHING if value is None else f"{value:+.2f}".replace("-", "−")
