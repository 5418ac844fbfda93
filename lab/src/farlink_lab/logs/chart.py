"""What an analysis shows, as numbers: `plot.chart` draws them for pages and for papers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from farlink_lab.quantity import show_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from farlink_lab.logs.circuits import Share
    from farlink_lab.logs.engine import Logs
    from farlink_lab.logs.planner.prefixes import Month
    from farlink_lab.logs.planner.replay import Outcome
    from farlink_lab.logs.service import Decision
    from farlink_lab.logs.sessions import Gathered
    from farlink_lab.logs.uneven import Uneven

# Of a histogram of sizes: half a doubling each.
_CLASSES_A_DOUBLING = 2
# Points of a cloud that an eye can tell apart.
_MOST_POINTS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Values that belong together: lines and points against numbers, bars against words."""

    name: str
    kind: Literal["line", "points", "bars"]
    x: Sequence[float | str]
    y: Sequence[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A figure, with the sentence beneath it."""

    identity: str
    caption: str
    x_title: str
    y_title: str
    series: tuple[Series, ...]
    x_log: bool = False
    y_log: bool = False


def session_chart(logs: Logs, found: Gathered, *, gaps_s: Sequence[float], min_bytes: int) -> Chart:
    """How many sessions there are of each size, for each gap."""
    from farlink_lab.logs.sessions import sessions  # noqa: PLC0415
    from farlink_lab.logs.summary import size_class  # noqa: PLC0415

    series = []
    for gap_s in gaps_s:
        table = sessions(found, gap_s=gap_s, min_bytes=min_bytes)
        marked = table.mutate(size_class=size_class(table.bytes, _CLASSES_A_DOUBLING))
        rows = logs.rows(marked.group_by("size_class").agg(sessions=marked.count()).order_by("size_class"))
        series.append(
            Series(
                name=f"gap {show_time(gap_s)}",
                kind="line",
                x=[2 ** ((row["size_class"] + 0.5) / _CLASSES_A_DOUBLING) / 1e6 for row in rows],
                y=[float(row["sessions"]) for row in rows],
            )
        )
    return Chart(
        identity="sessions",
        caption="Sessions by their size, in classes of half a doubling, for each gap.",
        x_title="size of the session, MB (10^6 bytes)",
        y_title="sessions",
        series=tuple(series),
        x_log=True,
        y_log=True,
    )


def circuit_chart(table: Sequence[Share]) -> Chart:
    """The shares of sessions and of transfers that are long enough for a circuit."""
    gaps = [show_time(gap) for gap in dict.fromkeys(share.gap_s for share in table)]
    series = []
    for setup in dict.fromkeys(share.setup_s for share in table):
        of_setup = [share for share in table if share.setup_s == setup]
        for what, values in (
            ("sessions", [share.of_sessions for share in of_setup]),
            ("transfers", [share.of_transfers for share in of_setup]),
        ):
            series.append(
                Series(
                    name=f"{what}, setup {show_time(setup)}",
                    kind="bars",
                    x=gaps,
                    y=[None if math.isnan(value) else 100 * value for value in values],
                )
            )
    return Chart(
        identity="circuits",
        caption="Sessions long enough for a dynamic circuit, and transfers in them, by gap and setup time.",
        x_title="gap",
        y_title="long enough, %",
        series=tuple(series),
    )


def plan_chart(outcomes: Sequence[Outcome]) -> Chart:
    """What each policy carries, and how well it uses its circuits."""
    names = [outcome.policy for outcome in outcomes]
    return Chart(
        identity="plan",
        caption="Of all bytes, those that circuits carry under each policy; of its circuits, what it uses.",
        x_title="policy",
        y_title="%",
        series=(
            Series(
                name="bytes carried", kind="bars", x=names, y=[100 * each.carried_share for each in outcomes]
            ),
            Series(name="utilisation", kind="bars", x=names, y=[100 * each.utilisation for each in outcomes]),
        ),
    )


def month_chart(months: Sequence[Month]) -> Chart:
    """What last month's prefixes catch of each month's alpha bytes."""
    return Chart(
        identity="months",
        caption="Of the bytes of alpha flows, those that prefixes learnt in the month before would catch.",
        x_title="month",
        y_title="caught, %",
        series=(
            Series(
                name="alpha bytes",
                kind="bars",
                x=[month.month for month in months],
                y=[None if month.caught_share is None else 100 * month.caught_share for month in months],
            ),
        ),
    )


def variance_chart(found: Uneven) -> Chart:
    """Throughputs against what equal shares of the server would give."""
    step = max(1, -(-len(found.group.bytes) // _MOST_POINTS))
    predicted = found.concurrency.predicted_bps[::step] / 1e6
    actual = found.group.throughput_bps[::step] / 1e6
    most = float(max(predicted.max(), actual.max()))
    return Chart(
        identity="variance",
        caption="Throughput of each transfer, and what equal shares of its server would give it.",
        x_title="predicted, Mb/s",
        y_title="actual, Mb/s",
        series=(
            Series(name="transfers", kind="points", x=_list(predicted), y=_list(actual)),
            Series(name="equal", kind="line", x=[0.0, most], y=[0.0, most]),
        ),
    )


def factor_chart(found: Uneven) -> Chart:
    """How much of the spread each factor explains."""
    factors = found.ranking.factors
    return Chart(
        identity="factors",
        caption="Of the variance of log throughput, the share that each factor alone explains.",
        x_title="factor",
        y_title="explained, %",
        series=(
            Series(
                name="share",
                kind="bars",
                x=[factor.name for factor in factors],
                y=[100 * factor.share[1] for factor in factors],
            ),
        ),
    )


def service_chart(decision: Decision) -> Chart:
    """What the sender's link must carry under each service."""
    told = [verdict for verdict in decision.verdicts if verdict.sender_bps is not None]
    return Chart(
        identity="service",
        caption="What the access link of the sender must carry in the peak minute, by service.",
        x_title="service",
        y_title="Mb/s",
        series=(
            Series(
                name="required",
                kind="bars",
                x=[verdict.service for verdict in told],
                y=[(verdict.sender_bps or 0.0) / 1e6 for verdict in told],
            ),
        ),
        y_log=True,
    )


def _list(values: Any) -> list[float]:
    return [float(f"{value:.5g}") for value in values]
