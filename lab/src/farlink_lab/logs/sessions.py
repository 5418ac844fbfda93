"""Sessions: transfers between two hosts with gaps of at most g.

In the order of their starts, E being the latest end so far: the next transfer joins where start − E ≤ g,
and begins a new session else. So a session lasts from its first start to its latest end, gaps included.
[Liu, Veeraraghavan et al., SC 2012 companion, and the project's review of March 2012; see docs/logs.md]

One sort serves all gaps: it gives each transfer E before it, and the bytes and transfers before it.
Transfers that begin no session with a gap of 0 begin none with a longer one, so what is left is small.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ibis

from farlink_lab.logs import sweep
from farlink_lab.logs.engine import DUCKDB
from farlink_lab.logs.summary import Summary, summary_columns, summary_of
from farlink_lab.logs.transfer import US, LogError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from farlink_lab.logs.engine import Logs

HOSTS, HOSTS_AND_USER = "hosts", "hosts+user"
_KEYS = {HOSTS: ("source", "destination"), HOSTS_AND_USER: ("source", "destination", "user")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Edges:
    """What all sessions are made of.

    Attributes:
        starts: Ibis table: `pair`, `start_us`, and of all transfers of the pair before it the latest end
            `before_us`, and `bytes_before`, `transfers_before`; none of them for the first.
        pairs: Ibis table: `pair`, its keys, `pair_end_us`, `pair_bytes`, `pair_transfers`.
        keys: Of a pair.
        left_out: Transfers without source or destination.
        transfers: All that were counted.
    """

    starts: Any
    pairs: Any
    keys: tuple[str, ...]
    left_out: int
    transfers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    """The sessions of one gap, as the studies' tables tell them."""

    gap_s: float
    sessions: int
    transfers: int
    size_bytes: Summary | None
    duration_s: Summary | None
    throughput_bps: Summary | None


def edges(logs: Logs, *, by: str = HOSTS, least_gap_s: float = 0.0) -> Edges:
    """Where sessions of a gap of at least `least_gap_s` may begin.

    Raises:
        LogError: where no transfer names both its ends.
    """
    keys = _KEYS[by]
    transfers = logs.transfers
    named = transfers.filter(transfers.source.notnull() & transfers.destination.notnull())
    if by == HOSTS_AND_USER:
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
    total = logs.rows(transfers.agg(rows=transfers.count()))[0]["rows"]
    if not counted:
        raise LogError(
            f"no session can be formed: none of {total:,} transfers names both its ends "
            "(withheld for privacy?): variance stands, which needs single transfers alone"
        )
    numbered = named.join(pairs, list(keys)).select(
        pair=pairs.pair, start_us=named.start_us, end_us=named.end_us, bytes=named.bytes
    )
    return Edges(
        starts=_starts(logs, numbered, least_gap_us=round(least_gap_s * US)),
        pairs=pairs,
        keys=keys,
        left_out=int(total) - int(counted),
        transfers=int(total),
    )


def _starts(logs: Logs, numbered: Any, *, least_gap_us: int) -> Any:
    """`Edges.starts` of transfers whose pairs have numbers."""
    if logs.name == DUCKDB:
        ordered = numbered.order_by("pair", "start_us")
        return logs.streamed(
            ordered, lambda batches: sweep.starts(batches, least_gap_us=least_gap_us), sweep.SCHEMA
        )
    before = ibis.rows_window(preceding=(None, 1), group_by=numbered.pair, order_by=numbered.start_us)
    run = numbered.select(
        "pair",
        "start_us",
        before_us=numbered.end_us.max().over(before),
        bytes_before=numbered.bytes.sum().over(before).cast("int64"),
        transfers_before=numbered.bytes.count().over(before).cast("int64"),
    )
    return logs.kept(run.filter(run.before_us.isnull() | (run.start_us - run.before_us > least_gap_us)))


def sessions(found: Edges, *, gap_s: float, min_bytes: int = 0) -> Any:
    """The sessions of a gap, an Ibis table.

    Returns:
        `pair`, `start_us`, `end_us`, `bytes`, `transfers`, `duration_s`, a row a session.
    """
    starts = found.starts.filter(
        found.starts.before_us.isnull() | (found.starts.start_us - found.starts.before_us > round(gap_s * US))
    )
    following = ibis.window(group_by=starts.pair, order_by=starts.start_us)
    bounded = starts.mutate(
        next_end_us=starts.before_us.lead().over(following),
        next_bytes=starts.bytes_before.lead().over(following),
        next_transfers=starts.transfers_before.lead().over(following),
    )
    pairs = found.pairs.select("pair", "pair_end_us", "pair_bytes", "pair_transfers")
    whole = bounded.join(pairs, "pair")
    made = whole.select(
        pair=whole.pair,
        start_us=whole.start_us,
        end_us=ibis.coalesce(whole.next_end_us, whole.pair_end_us),
        bytes=ibis.coalesce(whole.next_bytes, whole.pair_bytes) - whole.bytes_before.fill_null(0),
        transfers=ibis.coalesce(whole.next_transfers, whole.pair_transfers)
        - whole.transfers_before.fill_null(0),
    )
    made = made.mutate(duration_s=(made.end_us - made.start_us).cast("float64") / US)
    return made.filter(made.bytes >= min_bytes) if min_bytes else made


def named(found: Edges, table: Any) -> Any:
    """Sessions with the names of their ends, in the order of their starts."""
    joined = table.join(found.pairs.select("pair", *found.keys), "pair").drop("pair")
    ordered = [*found.keys, "start_us", "end_us", "duration_s", "bytes", "transfers"]
    return joined.select(*ordered).order_by("start_us", *found.keys)


def summaries(
    logs: Logs, found: Edges, *, gaps_s: Sequence[float], min_bytes: int = 0
) -> list[SessionSummary]:
    """Sizes, durations and throughputs of the sessions of each gap."""
    made = []
    for gap_s in gaps_s:
        table = sessions(found, gap_s=gap_s, min_bytes=min_bytes)
        rate = ibis.ifelse(
            table.duration_s > 0, 8 * table.bytes.cast("float64") / table.duration_s, ibis.null("float64")
        )
        row = logs.rows(
            table.agg(
                sessions=table.count(),
                transfers=table.transfers.sum().cast("int64"),
                **summary_columns(table.bytes.cast("float64"), "size"),
                **summary_columns(table.duration_s, "duration"),
                **summary_columns(rate, "throughput"),
            )
        )[0]
        made.append(
            SessionSummary(
                gap_s=gap_s,
                sessions=int(row["sessions"]),
                transfers=int(row["transfers"] or 0),
                size_bytes=summary_of(row, "size"),
                duration_s=summary_of(row, "duration"),
                throughput_bps=summary_of(row, "throughput"),
            )
        )
    return made


def transfer_throughput(logs: Logs) -> Summary:
    """Throughputs of single transfers, bit/s; those that took no time that the log can tell do not count.

    Raises:
        LogError: where none took any.
    """
    table = logs.transfers
    took = (table.end_us - table.start_us).cast("float64")
    rate = ibis.ifelse(took > 0, 8e6 * table.bytes.cast("float64") / took, ibis.null("float64"))
    found = summary_of(logs.rows(table.agg(**summary_columns(rate, "rate")))[0], "rate")
    if found is None:
        raise LogError("no transfer took any time: the log's clock is too coarse to tell throughputs")
    return found
