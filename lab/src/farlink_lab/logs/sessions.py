"""Sessions: transfers between two hosts with gaps of at most g.

In the order of their starts, E being the latest end so far: the next transfer joins where start − E ≤ g,
and begins a new session else. So a session lasts from its first start to its latest end, gaps included.
[Liu, Veeraraghavan et al., SC 2012 companion, and the project's review of March 2012; see docs/logs.md]

One sort serves all gaps: it gives each transfer E before it, and the bytes and transfers before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ibis
import pyarrow as pa

from farlink_lab.logs import sweep
from farlink_lab.logs.days import stretches
from farlink_lab.logs.distribution import summaries_by
from farlink_lab.logs.engine import DUCKDB
from farlink_lab.logs.tally import Tally
from farlink_lab.logs.transfer import US, LogError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from farlink_lab.logs.days import Stretch
    from farlink_lab.logs.engine import Logs
    from farlink_lab.logs.summary import Summary

HOSTS, HOSTS_AND_USER = "hosts", "hosts+user"
_KEYS = {HOSTS: ("source", "destination"), HOSTS_AND_USER: ("source", "destination", "user")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """The sessions of several gaps.

    Attributes:
        gaps_s: Which.
        table: Ibis table, a row a session: `gap_us`, `pair`, `start_us`, `end_us`, `bytes`, `transfers`.
        pairs: Ibis table: `pair` and its keys.
        keys: Of a pair.
        left_out: Transfers without source or destination.
        transfers: All that were counted.
        rates: Their throughputs, where they were gone over in this process.
    """

    gaps_s: tuple[float, ...]
    table: Any
    pairs: Any
    keys: tuple[str, ...]
    left_out: int
    transfers: int
    rates: Tally | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    """The sessions of one gap, as the studies' tables tell them."""

    gap_s: float
    sessions: int
    transfers: int
    size_bytes: Summary | None
    duration_s: Summary | None
    throughput_bps: Summary | None


def gather(logs: Logs, *, gaps_s: Sequence[float], by: str = HOSTS) -> Gathered:
    """The sessions of each of these gaps, by one sort of the transfers.

    Raises:
        LogError: where no transfer names both its ends.
    """
    keys = _KEYS[by]
    gaps_us = sorted({_micros(gap_s) for gap_s in gaps_s})
    rates = Tally() if logs.name == DUCKDB else None
    if rates is not None:
        table, pairs, counted = _swept(logs, keys, gaps_us, rates)
    else:
        table, pairs, counted = _windowed(logs, keys, gaps_us)
    if not counted:
        raise LogError(
            f"no session can be formed: none of {logs.count:,} transfers names both its ends "
            "(withheld for privacy?): variance stands, which needs single transfers alone"
        )
    return Gathered(
        gaps_s=tuple(gaps_s),
        table=table,
        pairs=pairs,
        keys=keys,
        left_out=logs.count - counted,
        transfers=logs.count,
        rates=rates,
    )


def _swept(logs: Logs, keys: tuple[str, ...], gaps_us: Sequence[int], rates: Tally) -> tuple[Any, Any, int]:
    """Sessions, pairs, and how many transfers they have, by a pass in this process."""
    found = sweep.Sweep(gaps_us)
    days = _tallied(stretches(logs.directory, logs.parts, keys=keys), rates)
    table = logs.taken(sweep.sessions(days, found), sweep.SCHEMA)
    names = list(zip(*found.numbers, strict=True)) or [()] * len(keys)
    columns = {key: pa.array(words, pa.string()) for key, words in zip(keys, names, strict=True)}
    pairs = pa.table({"pair": pa.array(found.numbers.values(), pa.int32()), **columns})
    return table, logs.taken(pairs.to_batches(), pairs.schema), found.transfers


def _tallied(days: Iterable[Stretch], rates: Tally) -> Iterator[Stretch]:
    """The same, whose throughputs are counted as they go by."""
    for stretch in days:
        if len(stretch.rates_bps):
            rates.take(stretch.rates_bps)
        yield stretch


def _windowed(logs: Logs, keys: tuple[str, ...], gaps_us: Sequence[int]) -> tuple[Any, Any, int]:
    """The same by windows, which a cluster computes where the transfers are."""
    transfers = logs.transfers
    named = transfers.filter(transfers.source.notnull() & transfers.destination.notnull())
    if "user" in keys:
        # Where a log names no user, all transfers of two hosts are of one nobody.
        named = named.mutate(user=named.user.fill_null(""))
    pairs = named.group_by(*keys).agg(
        pair_end_us=named.end_us.max(),
        pair_bytes=named.bytes.sum().cast("int64"),
        pair_transfers=named.count().cast("int64"),
    )
    order = ibis.window(order_by=[pairs[key] for key in keys])
    pairs = logs.kept(pairs.mutate(pair=ibis.row_number().over(order).cast("int32")))
    counted = logs.rows(pairs.agg(transfers=pairs.pair_transfers.sum().cast("int64")))[0]["transfers"]
    numbered = named.join(pairs, list(keys)).select(
        pair=pairs.pair, start_us=named.start_us, end_us=named.end_us, bytes=named.bytes
    )
    before = ibis.rows_window(preceding=(None, 1), group_by=numbered.pair, order_by=numbered.start_us)
    run = numbered.select(
        "pair",
        "start_us",
        before_us=numbered.end_us.max().over(before),
        bytes_before=numbered.bytes.sum().over(before).cast("int64"),
        transfers_before=numbered.bytes.count().over(before).cast("int64"),
    )
    # What begins no session of the shortest gap begins none of a longer one.
    starts = logs.kept(_beginnings(run, gaps_us[0]))
    tables = [_between(_beginnings(starts, gap_us), pairs, gap_us) for gap_us in gaps_us]
    return logs.kept(ibis.union(*tables)), pairs.select("pair", *keys), int(counted or 0)


def _beginnings(table: Any, gap_us: int) -> Any:
    return table.filter(table.before_us.isnull() | (table.start_us - table.before_us > gap_us))


def _between(starts: Any, pairs: Any, gap_us: int) -> Any:
    """Sessions, each from its beginning to that which follows it, or to the end of its pair."""
    following = ibis.window(group_by=starts.pair, order_by=starts.start_us)
    bounded = starts.mutate(
        next_end_us=starts.before_us.lead().over(following),
        next_bytes=starts.bytes_before.lead().over(following),
        next_transfers=starts.transfers_before.lead().over(following),
    )
    whole = bounded.join(pairs.select("pair", "pair_end_us", "pair_bytes", "pair_transfers"), "pair")
    return whole.select(
        gap_us=ibis.literal(gap_us, "int64"),
        pair=whole.pair,
        start_us=whole.start_us,
        end_us=ibis.coalesce(whole.next_end_us, whole.pair_end_us),
        bytes=ibis.coalesce(whole.next_bytes, whole.pair_bytes) - whole.bytes_before.fill_null(0),
        transfers=ibis.coalesce(whole.next_transfers, whole.pair_transfers)
        - whole.transfers_before.fill_null(0),
    )


def sessions(found: Gathered, *, gap_s: float, min_bytes: int = 0) -> Any:
    """The sessions of one of the gaps, an Ibis table.

    Returns:
        `pair`, `start_us`, `end_us`, `bytes`, `transfers`, `duration_s`, a row a session.
    """
    return _timed(found, [gap_s], min_bytes).drop("gap_us")


def _timed(found: Gathered, gaps_s: Sequence[float], min_bytes: int) -> Any:
    table = found.table
    asked = {_micros(gap_s) for gap_s in gaps_s}
    missing = asked - {_micros(gap_s) for gap_s in found.gaps_s}
    if missing:
        raise ValueError(f"sessions were not gathered for gaps of {sorted(missing)} µs")
    if asked != {_micros(gap_s) for gap_s in found.gaps_s}:
        # Engines look up what is in a list for each row; this they compare by columns.
        table = table.filter(ibis.or_(*(table.gap_us == gap_us for gap_us in sorted(asked))))
    if min_bytes:
        table = table.filter(table.bytes >= min_bytes)
    return table.mutate(duration_s=(table.end_us - table.start_us).cast("float64") / US)


def _micros(gap_s: float) -> int:
    return round(gap_s * US)


def named(found: Gathered, table: Any) -> Any:
    """Sessions with the names of their ends, in the order of their starts."""
    joined = table.join(found.pairs, "pair").drop("pair")
    ordered = [*found.keys, "start_us", "end_us", "duration_s", "bytes", "transfers"]
    return joined.select(*ordered).order_by("start_us", *found.keys)


def summaries(
    logs: Logs, found: Gathered, *, gaps_s: Sequence[float], min_bytes: int = 0
) -> list[SessionSummary]:
    """Sizes, durations and throughputs of the sessions of each gap."""
    table = _timed(found, gaps_s, min_bytes)
    rate = ibis.ifelse(
        table.duration_s > 0, 8 * table.bytes.cast("float64") / table.duration_s, ibis.null("float64")
    )
    gaps_us = [_micros(gap_s) for gap_s in gaps_s]
    # A sum for each gap, which costs less than to group.
    sums = {
        f"of_{place}": table.transfers.sum(where=table.gap_us == gap_us).cast("int64")
        for place, gap_us in enumerate(gaps_us)
    }
    (transfers,) = logs.rows(table.agg(**sums))
    values = {"size": table.bytes, "duration": table.duration_s, "throughput": rate}
    told = summaries_by(logs, table, values, group=table.gap_us)
    made = []
    for place, (gap_s, gap_us) in enumerate(zip(gaps_s, gaps_us, strict=True)):
        size = told["size"].get(gap_us)
        made.append(
            SessionSummary(
                gap_s=gap_s,
                sessions=size.count if size else 0,
                transfers=int(transfers[f"of_{place}"] or 0),
                size_bytes=size,
                duration_s=told["duration"].get(gap_us),
                throughput_bps=told["throughput"].get(gap_us),
            )
        )
    return made


def transfer_throughput(logs: Logs, found: Gathered | None = None) -> Summary:
    """Throughputs of single transfers, bit/s; those that took no time that the log can tell do not count.

    Args:
        logs: Of which.
        found: Sessions of them, where they were gathered: the throughputs then went by already.

    Raises:
        LogError: where none took any.
    """
    if found is not None and found.rates is not None and found.rates.count:
        summary = found.rates.summary()
        if summary is not None:
            return summary
    table = logs.transfers
    took = (table.end_us - table.start_us).cast("float64")
    rate = ibis.ifelse(took > 0, 8e6 * table.bytes.cast("float64") / took, ibis.null("float64"))
    summary = summaries_by(logs, table, {"rate": rate}, group=ibis.literal(0))["rate"].get(0)
    if summary is None:
        raise LogError("no transfer took any time: the log's clock is too coarse to tell throughputs")
    return summary
