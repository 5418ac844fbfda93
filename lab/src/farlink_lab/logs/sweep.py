"""One pass over transfers by pair and start: the sessions of several gaps at once.

A window of SQL says the same, and does so on a cluster; within a process this is faster, and holds no more
than what each pair has so far.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from farlink_lab.logs.days import Stretch
    from farlink_lab.logs.transfer import Mask, Whole

SCHEMA = pa.schema(
    [
        ("gap_us", pa.int64()),
        ("pair", pa.int32()),
        ("start_us", pa.int64()),
        ("end_us", pa.int64()),
        ("bytes", pa.int64()),
        ("transfers", pa.int64()),
    ]
)
# Before every moment of a log, and so far that no gap reaches over it.
_NEVER = -(1 << 60)
# Of a whole number that is not negative.
_BITS = 63


class Sweep:
    """What each pair of hosts has so far: give it the stretches of a log in their order.

    1. [`over`](Self.over) each stretch, which yields the sessions that are over
    2. [`rest`](Self.rest) at the end, which yields those that were not

    Attributes:
        numbers: Of the pairs that have come, from 0.
    """

    def __init__(self, gaps_us: Sequence[int]) -> None:
        self.numbers: dict[tuple[str, ...], int] = {}
        self._gaps_us = sorted(set(gaps_us))
        # Of each pair, its latest end, its bytes and its transfers.
        self._latest = np.empty(0, dtype=np.int64)
        self._bytes = np.empty(0, dtype=np.int64)
        self._transfers = np.empty(0, dtype=np.int64)
        # Of each gap and pair, the start of its open session, and bytes and transfers of the pair before it.
        self._open = np.empty((len(self._gaps_us), 3, 0), dtype=np.int64)

    @property
    def transfers(self) -> int:
        """How many have come."""
        return int(self._transfers.sum())

    def over(self, stretch: Stretch) -> Iterator[pa.RecordBatch]:
        """Takes the next transfers; yields `SCHEMA`."""
        if not len(stretch.start_us):
            return
        pairs = self._numbered(stretch.pairs)
        heads, lengths = stretch.heads[:-1], np.diff(stretch.heads)
        known = self._transfers[pairs] > 0
        of = np.repeat(np.arange(len(pairs)), lengths)
        latest = self._latest_ends(stretch, of, pairs)
        before = np.empty_like(latest)
        before[1:] = latest[:-1]
        before[heads] = self._latest[pairs]
        idle = stretch.start_us - before
        begins = np.flatnonzero(idle > self._gaps_us[0])
        moved = np.cumsum(stretch.bytes)
        base = (moved - stretch.bytes)[heads]
        of, idle, before = of[begins], idle[begins], before[begins]
        rows = np.stack(
            [
                stretch.start_us[begins],
                moved[begins] - stretch.bytes[begins] + (self._bytes[pairs] - base)[of],
                begins + (self._transfers[pairs] - heads)[of],
            ]
        )
        for place, gap_us in enumerate(self._gaps_us):
            here = slice(None) if place == 0 else np.flatnonzero(idle > gap_us)
            yield self._closed(place, rows[:, here], of[here], before[here], pairs=pairs, known=known)
        last = stretch.heads[1:] - 1
        self._latest[pairs] = latest[last]
        self._bytes[pairs] += moved[last] - base
        self._transfers[pairs] += lengths

    def rest(self) -> Iterator[pa.RecordBatch]:
        """The sessions that are open at the end of the log."""
        count = len(self.numbers)
        whole = np.stack([self._bytes, self._transfers])[:, :count]
        for place, gap_us in enumerate(self._gaps_us):
            start, before = self._open[place][0, :count], self._open[place][1:, :count]
            yield _batch(gap_us, np.arange(count), start, self._latest[:count], whole - before)

    def _closed(
        self, place: int, rows: Whole, of: Whole, before: Whole, *, pairs: Whole, known: Mask
    ) -> pa.RecordBatch:
        """The sessions of a gap that end where others begin, which `rows` tells of."""
        numbers = pairs[of]
        first = np.ones(len(of), dtype=np.bool_)
        first[1:] = of[1:] != of[:-1]
        previous = np.empty_like(rows)
        previous[:, 1:] = rows[:, :-1]
        previous[:, first] = self._open[place][:, numbers[first]]
        last = np.ones(len(of), dtype=np.bool_)
        last[:-1] = first[1:]
        self._open[place][:, numbers[last]] = rows[:, last]
        # The first of a pair that never came before ends nothing.
        ends = ~first | known[of]
        if not ends.all():
            numbers, rows, previous, before = numbers[ends], rows[:, ends], previous[:, ends], before[ends]
        return _batch(self._gaps_us[place], numbers, previous[0], before, rows[1:] - previous[1:])

    def _latest_ends(self, stretch: Stretch, of: Whole, pairs: Whole) -> Whole:
        """Of each transfer, the latest end of its pair up to it."""
        heads = stretch.heads[:-1]
        ends = stretch.end_us.copy()
        ends[heads] = np.maximum(ends[heads], self._latest[pairs])
        base = int(ends.min())
        ends -= base
        bits = int(ends.max()).bit_length()
        if len(pairs).bit_length() + bits > _BITS:
            for first, after in zip(heads.tolist(), stretch.heads[1:].tolist(), strict=True):
                np.maximum.accumulate(ends[first:after], out=ends[first:after])
            return ends + base
        # With its pair in front, a later pair is more than any end of an earlier one.
        found = np.maximum.accumulate((of << bits) | ends)
        found &= (1 << bits) - 1
        found += base
        return found

    def _numbered(self, pairs: Sequence[tuple[str, ...]]) -> Whole:
        """The numbers of pairs, with room for those that are new."""
        numbers = self.numbers
        found = np.array([numbers.setdefault(pair, len(numbers)) for pair in pairs], dtype=np.int64)
        if len(numbers) > len(self._latest):
            # Twice what there was, so that a log in which new pairs keep coming is not copied for each.
            more = len(numbers)
            self._latest = np.concatenate([self._latest, np.full(more, _NEVER)])
            self._bytes, self._transfers = (
                np.concatenate([each, np.zeros(more, dtype=np.int64)])
                for each in (self._bytes, self._transfers)
            )
            self._open = np.concatenate(
                [self._open, np.zeros((*self._open.shape[:2], more), dtype=np.int64)], axis=2
            )
        return found


def sessions(stretches: Iterable[Stretch], sweep: Sweep) -> Iterator[pa.RecordBatch]:
    """The sessions of a log, batch by batch."""
    for stretch in stretches:
        yield from sweep.over(stretch)
    yield from sweep.rest()


def _batch(gap_us: int, pair: Whole, start: Whole, end: Whole, sums: Whole) -> pa.RecordBatch:
    columns = [
        pa.array(np.full(len(pair), gap_us)),
        pa.array(pair.astype(np.int32)),
        *(pa.array(np.ascontiguousarray(each)) for each in (start, end, *sums)),
    ]
    return pa.record_batch(columns, schema=SCHEMA)
