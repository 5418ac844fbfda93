"""A link's counters beside the log: how much of its traffic is logged, and whether the rest disturbs that.

A file of counters has lines `time,bytes`: the end of an interval (ISO 8601 or seconds since 1970; of a zone
that is told, where it names none) and the bytes within it; every 30 s as a rule. The bytes of each transfer
are spread evenly over its time.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from farlink_lab.logs.stamp import StampError, moment_us
from farlink_lab.logs.transfer import LogError
from farlink_lab.logs.variance.concurrency import correlation
from farlink_lab.logs.zone import Zone

if TYPE_CHECKING:
    from pathlib import Path

    from farlink_lab.logs.engine import Logs
    from farlink_lab.logs.variance.alike import Group

Array = NDArray[np.float64]
Whole = NDArray[np.int64]
# Transfers on the link that are held in memory: three numbers each.
MOST = 50_000_000
# Intervals that differ from the usual one by more are gaps of the collector, and do not count.
_UNEVEN = 0.5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Counters:
    """Bytes that went over a link; arrays have shape (intervals,).

    Attributes:
        left_out: Lines that are no interval: unreadable, out of order or beside a gap.
    """

    start_us: Whole
    end_us: Whole
    bytes: Array
    left_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlations:
    """Of the logged bytes of intervals with the link's total, and with what else it carried.

    Attributes:
        intervals: With any logged byte.
        logged_share: Of the total of these, the logged bytes.
        exceeding: Of them, those in which more was logged than the link carried.
    """

    intervals: int
    logged_share: float
    exceeding: int
    with_total: float | None
    with_other: float | None


def read_counters(path: Path, *, zone: str = "UTC") -> Counters:
    """The counters of a file.

    Args:
        path: Of the file.
        zone: Of times that name none.

    Raises:
        LogError: where it cannot be read or has fewer than two intervals, or nobody knows the zone.
    """
    local = Zone(name=zone)
    times: list[int] = []
    unzoned: list[bool] = []
    sizes: list[float] = []
    left_out = 0
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for number, row in enumerate(csv.reader(file)):
                try:
                    (when, naive), size = moment_us(row[0]), float(row[1])
                except (StampError, ValueError, IndexError):
                    # A heading is no interval.
                    left_out += number > 0 and bool(row)
                    continue
                if size < 0 or not np.isfinite(size):
                    left_out += 1
                    continue
                times.append(when)
                unzoned.append(naive)
                sizes.append(size)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise LogError(f"--snmp: {path}: {error}: name a file of lines time,bytes") from error
    ends, counts = np.array(times, dtype=np.int64), np.array(sizes)
    naive_rows = np.array(unzoned, dtype=np.bool_)
    good = np.ones(len(ends), dtype=np.bool_)
    _, ends[naive_rows], skipped = local.to_utc(ends[naive_rows], ends[naive_rows])
    good[naive_rows] = ~skipped
    ends, counts = ends[good], counts[good]
    # In order: each later than all before it.
    good = ends > np.maximum.accumulate(np.concatenate([[-(1 << 62)], ends]))[:-1]
    left_out += len(times) - int(good.sum())
    ends, counts = ends[good], counts[good]
    if len(ends) < 3:
        raise LogError(
            f"--snmp: {path}: fewer than three lines time,bytes in it, as in 2026-11-21T03:36:30Z,5000"
        )
    lengths = np.diff(ends)
    usual = np.median(lengths)
    even = np.abs(lengths - usual) <= _UNEVEN * usual
    return Counters(
        start_us=ends[:-1][even],
        end_us=ends[1:][even],
        bytes=counts[1:][even],
        left_out=left_out + int((~even).sum()),
    )


def logged_bytes(starts: Whole, ends: Whole, sizes: Whole, counters: Counters) -> Array:
    """Bytes of the transfers within each interval, spread evenly: shape (intervals,)."""
    took = np.maximum(ends - starts, 1)
    rates = sizes / took
    times = np.concatenate([starts, starts + took])
    order = np.argsort(times, kind="stable")
    steps = np.concatenate([rates, -rates])[order]
    times = times[order]
    base = float(times[0])
    total = np.concatenate([[0.0], np.cumsum(np.cumsum(steps)[:-1] * np.diff(times))])
    edges, at = np.unique(times, return_index=True)
    upper, lower = (
        np.interp(moments - base, edges - base, total[at]) for moments in (counters.end_us, counters.start_us)
    )
    # What cancels leaves less than a byte.
    found: Array = np.maximum(upper - lower, 0.0)
    return found


def correlations(logged: Array, counters: Counters, where: NDArray[np.bool_] | None = None) -> Correlations:
    """Over the intervals with logged bytes, or those `where` says."""
    busy = logged > 1.0 if where is None else where & (logged > 1.0)
    ours, total = logged[busy], counters.bytes[busy]
    other = total - ours
    return Correlations(
        intervals=int(busy.sum()),
        logged_share=float(ours.sum() / total.sum()) if total.sum() else 0.0,
        exceeding=int((other < 0).sum()),
        with_total=correlation(ours, total),
        with_other=correlation(ours, other),
    )


def by_quartile(group: Group, logged: Array, counters: Counters) -> list[Correlations]:
    """The same over the intervals in which transfers of each quartile of throughput ran, slowest first."""
    rates = group.throughput_bps
    bounds = np.quantile(rates, [0.25, 0.5, 0.75])
    quartile = np.searchsorted(bounds, rates, side="left")
    found = []
    for number in range(4):
        here = quartile == number
        within = np.zeros(len(counters.bytes) + 1, dtype=np.int64)
        first = np.searchsorted(counters.end_us, group.start_us[here], side="right")
        after = np.searchsorted(counters.start_us, group.end_us[here], side="left")
        some = first < after
        np.add.at(within, first[some], 1)
        np.add.at(within, after[some], -1)
        found.append(correlations(logged, counters, np.cumsum(within)[:-1] > 0))
    return found


def other_bps(group: Group, logged: Array, counters: Counters) -> Array:
    """Mean rate of what else the link carried during each transfer: shape (transfers,), NaN where unknown."""
    lengths = (counters.end_us - counters.start_us).astype(np.float64)
    rates = 8e6 * (counters.bytes - logged) / lengths
    total = np.concatenate([[0.0], np.cumsum(rates)])
    first = np.searchsorted(counters.end_us, group.start_us, side="right")
    after = np.searchsorted(counters.start_us, group.end_us, side="left")
    count = after - first
    found = np.full(len(group.bytes), np.nan)
    known = count > 0
    found[known] = (total[after[known]] - total[first[known]]) / count[known]
    return found


def on_link(logs: Logs, counters: Counters) -> tuple[Whole, Whole, Whole]:
    """Starts, ends and sizes of all logged transfers while the link was counted.

    Raises:
        LogError: where there are none, or too many to hold.
    """
    table = logs.transfers
    first, last = int(counters.start_us.min()), int(counters.end_us.max())
    table = table.filter((table.end_us >= first) & (table.start_us <= last))
    count = int(logs.rows(table.agg(count=table.count()))[0]["count"])
    if not count:
        raise LogError(
            "--snmp: no logged transfer ran while these counters counted: are they of another time?"
        )
    if count > MOST:
        raise LogError(
            f"--snmp: {count:,} transfers ran while these counters counted, more than {MOST:,}: "
            "name counters of less time"
        )
    rows = logs.table(table.select("start_us", "end_us", "bytes"))
    starts, ends, sizes = (rows[name].to_numpy() for name in ("start_us", "end_us", "bytes"))
    return starts, ends, sizes
