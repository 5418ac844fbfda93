"""One pass over transfers by pair and start: what came before each, and where sessions may begin.

A window of SQL says the same, and does so on a cluster; within a process a sorted stream is faster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from farlink_lab.logs.transfer import Whole

SCHEMA = pa.schema(
    [
        ("pair", pa.int32()),
        ("start_us", pa.int64()),
        ("before_us", pa.int64()),
        ("bytes_before", pa.int64()),
        ("transfers_before", pa.int64()),
    ]
)


@dataclass(slots=True)
class _Carried:
    """What the pair that the last batch ended in has so far."""

    pair: int = -1
    latest_us: int = 0
    bytes: int = 0
    transfers: int = 0


def starts(batches: Iterable[pa.RecordBatch], *, least_gap_us: int) -> Iterator[pa.RecordBatch]:
    """The transfers that begin a session of a gap of `least_gap_us`, batch by batch.

    Args:
        batches: `pair`, `start_us`, `end_us`, `bytes`, ordered by pair and start.
        least_gap_us: The shortest gap that will be asked about.

    Returns:
        Batches of `SCHEMA`; of the first transfer of a pair nothing is before.
    """
    carried = _Carried()
    for batch in batches:
        if batch.num_rows:
            yield _swept(batch, carried, least_gap_us)


def _swept(batch: pa.RecordBatch, carried: _Carried, least_gap_us: int) -> pa.RecordBatch:
    pair, start, end, size = (
        batch.column(name).to_numpy() for name in ("pair", "start_us", "end_us", "bytes")
    )
    rows = len(pair)
    heads = np.flatnonzero(np.diff(pair, prepend=-1))
    edges = np.append(heads, rows)
    latest = np.empty(rows, dtype=np.int64)
    for first, after in zip(heads.tolist(), edges[1:].tolist(), strict=True):
        np.maximum.accumulate(end[first:after], out=latest[first:after])
    goes_on = int(pair[0]) == carried.pair
    if goes_on:
        np.maximum(latest[: edges[1]], carried.latest_us, out=latest[: edges[1]])
    lengths = np.diff(edges)
    total = np.cumsum(size)
    base = np.repeat(np.concatenate([[0], total[heads[1:] - 1]]), lengths)
    moved: Whole = total - base
    number: Whole = np.arange(1, rows + 1) - np.repeat(heads, lengths)
    if goes_on:
        moved[: edges[1]] += carried.bytes
        number[: edges[1]] += carried.transfers
    before = np.empty(rows, dtype=np.int64)
    before[1:] = latest[:-1]
    before[0] = carried.latest_us
    is_first = np.zeros(rows, dtype=np.bool_)
    is_first[heads] = True
    is_first[0] = not goes_on
    begins = np.flatnonzero(is_first | (start - before > least_gap_us))
    nothing = is_first[begins]
    carried.pair, carried.latest_us = int(pair[-1]), int(latest[-1])
    carried.bytes, carried.transfers = int(moved[-1]), int(number[-1])
    return pa.record_batch(
        [
            pa.array(pair[begins], pa.int32()),
            pa.array(start[begins]),
            pa.array(before[begins], mask=nothing),
            pa.array((moved - size)[begins], mask=nothing),
            pa.array(number[begins] - 1, mask=nothing),
        ],
        schema=SCHEMA,
    )
