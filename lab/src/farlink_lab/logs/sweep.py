"""One pass over transfers by pair and start: the sessions of several gaps at once.

A window of SQL says the same, and does so on a cluster; within a process this is faster, and holds no more
than what each pair has so far.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Carried:
    """Of each pair of a stretch, what came of it in earlier ones.

    Attributes:
        numbers: Of the pairs.
        known: Whether any transfer did.
        bytes, transfers: What to add to a sum within the stretch for one from the beginning of the log.
    """

    numbers: Whole
    known: Mask
    bytes: Whole
    transfers: Whole


@dataclass(frozen=True, slots=True, kw_only=True)
class _Begun:
    """The transfers of a stretch that begin sessions of a gap.

    Attributes:
        edges: Shape (pairs + 1,): where those of each pair begin, and where the last end.
        start: Of each.
        before: The latest end of its pair before it.
        bytes, transfers: Of the stretch before it.
    """

    edges: Whole
    start: Whole
    before: Whole
    bytes: Whole
    transfers: Whole


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
        idle, latest = self._idle(stretch, pairs)
        moved = np.zeros(len(idle) + 1, dtype=np.int64)
        np.cumsum(stretch.bytes, out=moved[1:])
        carried = _Carried(
            numbers=pairs,
            known=self._transfers[pairs] > 0,
            bytes=self._bytes[pairs] - moved[heads],
            transfers=self._transfers[pairs] - heads,
        )
        at = np.flatnonzero(idle > self._gaps_us[0])
        idle, start, bytes_before = idle[at], stretch.start_us[at], moved[at]
        for place, gap_us in enumerate(self._gaps_us):
            if place:
                # What begins no session of a shorter gap begins none of a longer one.
                here = np.flatnonzero(idle > gap_us)
                idle, start, bytes_before, at = idle[here], start[here], bytes_before[here], at[here]
            begun = _Begun(
                edges=np.searchsorted(at, stretch.heads),
                start=start,
                before=start - idle,
                bytes=bytes_before,
                transfers=at,
            )
            yield self._closed(place, begun, carried)
        self._latest[pairs] = latest
        self._bytes[pairs] += moved[stretch.heads[1:]] - moved[heads]
        self._transfers[pairs] += lengths

    def rest(self) -> Iterator[pa.RecordBatch]:
        """The sessions that are open at the end of the log."""
        count = len(self.numbers)
        whole = np.stack([self._bytes, self._transfers])[:, :count]
        for place, gap_us in enumerate(self._gaps_us):
            start, before = self._open[place][0, :count], self._open[place][1:, :count]
            pair = np.arange(count, dtype=np.int32)
            yield _batch(gap_us, pair, start, self._latest[:count], *(whole - before))

    def _closed(self, place: int, begun: _Begun, carried: _Carried) -> pa.RecordBatch:
        """The sessions of a gap that end where others begin."""
        edges = begun.edges
        having = np.flatnonzero(edges[1:] > edges[:-1])
        first, last, numbers = edges[having], edges[having + 1] - 1, carried.numbers[having]
        # Of the first of a pair the one before it began in an earlier stretch.
        opened = self._open[place]
        start = _previous(begun.start, first, opened[0, numbers])
        size = begun.bytes - _previous(begun.bytes, first, opened[1, numbers] - carried.bytes[having])
        count = begun.transfers - _previous(
            begun.transfers, first, opened[2, numbers] - carried.transfers[having]
        )
        pair = np.repeat(carried.numbers.astype(np.int32), np.diff(edges))
        opened[0, numbers] = begun.start[last]
        opened[1, numbers] = begun.bytes[last] + carried.bytes[having]
        opened[2, numbers] = begun.transfers[last] + carried.transfers[having]
        found: list[NDArray[np.int64] | NDArray[np.int32]] = [pair, start, begun.before, size, count]
        # The first of a pair that never came before ends nothing.
        new = first[~carried.known[having]]
        if len(new):
            standing = np.ones(len(pair), dtype=np.bool_)
            standing[new] = False
            found = [each[standing] for each in found]
        return _batch(self._gaps_us[place], *found)

    def _idle(self, stretch: Stretch, pairs: Whole) -> tuple[Whole, Whole]:
        """Of each transfer, how long its pair had been idle before it; and the latest end of each pair."""
        heads, lengths = stretch.heads[:-1], np.diff(stretch.heads)
        ends, before = stretch.end_us, self._latest[pairs]
        least = int(ends.min())
        apart = max(int(ends.max()), int(before.max())) - least + 1
        if (len(pairs) * apart).bit_length() > _BITS:
            latest = ends.copy()
            for first, after, earlier in zip(heads, stretch.heads[1:], before, strict=True):
                latest[first] = max(latest[first], earlier)
                np.maximum.accumulate(latest[first:after], out=latest[first:after])
            shift = np.zeros(len(pairs), dtype=np.int64)
            idle = stretch.start_us.copy()
        else:
            # With its pair added, a later pair is more than any end of an earlier one: one pass for all.
            shift = np.arange(len(pairs)) * apart - least
            each = np.repeat(shift, lengths)
            latest = ends + each
            latest[heads] = np.maximum(latest[heads], before + shift)
            np.maximum.accumulate(latest, out=latest)
            idle = stretch.start_us + each
        idle[1:] -= latest[:-1]
        idle[heads] = stretch.start_us[heads] - before
        return idle, latest[stretch.heads[1:] - 1] - shift

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


def _previous(values: Whole, first: Whole, carried: Whole) -> Whole:
    """Of each value the one before it; of the first of each pair what was carried."""
    found = np.empty_like(values)
    found[1:] = values[:-1]
    found[first] = carried
    return found


def _batch(gap_us: int, *columns: NDArray[np.int64] | NDArray[np.int32]) -> pa.RecordBatch:
    gaps = pa.array(np.full(len(columns[0]), gap_us))
    return pa.record_batch([gaps, *map(pa.array, columns)], schema=SCHEMA)
