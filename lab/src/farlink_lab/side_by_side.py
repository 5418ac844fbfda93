"""A comparison of two campaigns in words, tables and JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

from farlink_lab.comparison import LEVEL
from farlink_lab.quantity import show_rate, show_time

if TYPE_CHECKING:
    from farlink_lab.comparison import Comparison, Difference, Pair, Point, Ratio


NOT_CLEAR = "not clear"


def tables(found: Comparison) -> list[Table]:
    """A table for each configuration: a row for each RTT, and one over all of them."""
    return [_table(pair) for pair in found.pairs]


def _table(pair: Pair) -> Table:
    table = Table(
        # A label is the user's: brackets in it are no markup.
        title=Text(f"{pair.name} (fixed {pair.mode})", style="bold"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    # As wide as a terminal of 80 columns has it: the unit of differences stands in their heading.
    largest = max(max(point.before_bps, point.after_bps) for point in pair.points) if pair.points else 0.0
    scale, unit = (1e9, "Gb/s") if largest >= 1e9 else (1e6, "Mb/s")
    both = f"ratio ({LEVEL:.0%} interval)\ndifference, {unit}"
    for heading in ("RTT", "before", "after", "runs", both):
        table.add_column(heading, justify="right", no_wrap=True)
    # On a narrow terminal words go on the next line, and no number is cut.
    table.add_column("")
    for point in pair.points:
        table.add_row(
            show_time(point.rtt_s),
            show_rate(point.before_bps),
            show_rate(point.after_bps),
            f"{point.before_runs}, {point.after_runs}",
            _both(point.ratio, point.difference, scale=scale),
            verdict(point),
        )
    if pair.overall is not None and len(pair.points) > 1:
        table.add_section()
        judged = _judged(pair.overall) if pair.overall.clear else NOT_CLEAR
        table.add_row("all RTTs", "", "", "", _both(pair.overall, pair.difference, scale=scale), judged)
    return table


def verdict(point: Point) -> str:
    """What a point says, in a few words."""
    if point.late:
        return "late"
    if point.ratio is None:
        return "a run moved nothing"
    if point.ratio.clear:
        return _judged(point.ratio)
    return NOT_CLEAR if point.enough else "too few runs"


def sentences(found: Comparison, *, before: str, after: str) -> list[str]:
    """What is clearly different, what stands only in one, and what is not compared."""
    said = []
    if found.pairs:
        clear = [pair for pair in found.pairs if pair.overall is not None and pair.overall.clear]
        said.append(
            f"clearly different over all their RTTs: {len(clear)} of {len(found.pairs)} configurations"
            + "".join(f"; {pair.name}: {_change(pair.overall)}" for pair in clear if pair.overall)
        )
    else:
        said.append(f"{before} and {after} have no configuration in common")
    for what, old, new in found.other_connection:
        said.append(
            f"another connection: {what} {old} in {before}, {new} in {after}: what differs may come of that"
        )
    for where, names in ((before, found.only_before), (after, found.only_after)):
        if names:
            said.append(f"only in {where}: {'; '.join(names)}")
    said += _limited(found, before=before, after=after)
    for old, new in found.other_amounts:
        said.append(f"not compared, another size or duration is another curve: {old} and {new}")
    for pair in found.pairs:
        for where, rtts in ((before, pair.only_before_s), (after, pair.only_after_s)):
            if rtts:
                said.append(f"{pair.name}: only in {where}: {', '.join(map(show_time, rtts))}")
    return said


def nothing_compared(found: Comparison, *, before: str, after: str) -> str:
    """That nothing was compared, in one line, and why; empty where something was."""
    if any(pair.points for pair in found.pairs):
        return ""
    lacking = "RTT" if found.pairs else "configuration"
    return f"nothing was compared: {before} and {after} have no {lacking} in common"


def _limited(found: Comparison, *, before: str, after: str) -> list[str]:
    return [
        f"left out of {where}: {many} run{'' if many == 1 else 's'} that --limit held to a rate"
        for where, many in zip((before, after), found.limited, strict=True)
        if many
    ]


def as_json(found: Comparison, *, before: str, after: str) -> str:
    """One object; what is not known is null."""
    value = {
        "before": before,
        "after": after,
        "level": LEVEL,
        "configurations": [_pair_object(pair) for pair in found.pairs],
        "only_before": list(found.only_before),
        "only_after": list(found.only_after),
        "other_amounts": [{"before": old, "after": new} for old, new in found.other_amounts],
        "other_connection": [
            {"what": what, "before": old, "after": new} for what, old, new in found.other_connection
        ],
        "limited": dict(zip(("before", "after"), found.limited, strict=True)),
    }
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _pair_object(pair: Pair) -> dict[str, Any]:
    return {
        "configuration": pair.label,
        "mode": pair.mode,
        "amount": pair.amount,
        "overall": _ratio_object(pair.overall),
        "overall_difference": None
        if pair.difference is None
        else {
            "value_bps": pair.difference.value,
            "low_bps": pair.difference.low,
            "high_bps": pair.difference.high,
        },
        "points": [
            {
                "rtt_s": point.rtt_s,
                "before_bps": point.before_bps,
                "after_bps": point.after_bps,
                "difference_bps": point.difference.value,
                "difference_low_bps": point.difference.low,
                "difference_high_bps": point.difference.high,
                "before_runs": point.before_runs,
                "after_runs": point.after_runs,
                "late": point.late,
                "enough_runs": point.enough,
                "ratio": _ratio_object(point.ratio),
            }
            for point in pair.points
        ],
        "only_before_rtt_s": list(pair.only_before_s),
        "only_after_rtt_s": list(pair.only_after_s),
    }


def _ratio_object(ratio: Ratio | None) -> dict[str, Any] | None:
    if ratio is None:
        return None
    return {
        "value": ratio.value,
        "low": ratio.low,
        "high": ratio.high,
        "chance": ratio.chance,
        "clear": ratio.clear,
    }


def _both(ratio: Ratio | None, difference: Difference | None, *, scale: float) -> str:
    """The ratio and, beneath, the difference, each with its interval."""
    if difference is None:
        return _shown(ratio)
    said = f"{difference.value / scale:+.2f}"
    if difference.low is not None and difference.high is not None:
        said += f" ({difference.low / scale:+.2f} to {difference.high / scale:+.2f})"
    return f"{_shown(ratio)}\n{said.replace('-', '−')}"


def _shown(ratio: Ratio | None) -> str:
    if ratio is None:
        return "–"
    return f"{ratio.value:.3f}{_interval(ratio)}"


def _interval(ratio: Ratio) -> str:
    return "" if ratio.low is None or ratio.high is None else f" ({ratio.low:.3f} to {ratio.high:.3f})"


def _judged(ratio: Ratio) -> str:
    return "clearly faster" if ratio.value > 1 else "clearly slower"


def _change(ratio: Ratio) -> str:
    return f"{ratio.value:.3f} times as fast{_interval(ratio)}"
