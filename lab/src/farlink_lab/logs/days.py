"""Transfers some days at a time, by pair and start: what `sweep` goes over.

An import lays transfers by the day of their start. So the one sort that sessions need is of a few days at a
time, on every processor, and nothing of a log need be held but those.
"""

from __future__ import annotations

import math
import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from farlink_lab.logs.transfer import DAY_US, US

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from numpy.typing import NDArray

    from farlink_lab.logs.store import Part
    from farlink_lab.logs.transfer import Whole

# Of a stretch: enough that what is done once for each costs nothing, little enough for a processor's cache.
STRETCH_ROWS = 400_000
# Stretches that are being read beside the one in hand: their memory is bounded.
_AHEAD = 3
_TIMES = ("start_us", "end_us", "bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Transfers between two moments, by pair and start.

    Attributes:
        pairs: The keys of each pair that has any, in their order.
        heads: Shape (pairs + 1,): where the transfers of each pair begin, and where the last end.
        start_us, end_us, bytes: Shape (transfers,).
        rates_bps: Throughputs of all that took any time, in no order, those without both ends too.
    """

    pairs: list[tuple[str, ...]]
    heads: Whole
    start_us: Whole
    end_us: Whole
    bytes: Whole
    rates_bps: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """The files of some days, and where a day has too many transfers, from and until which moment."""

    paths: tuple[Path, ...]
    bounds: tuple[int, int] | None = None


def stretches(
    directory: Path, parts: Sequence[Part], *, keys: tuple[str, ...], most_rows: int = STRETCH_ROWS
) -> Iterator[Stretch]:
    """The transfers that name both their ends, stretch by stretch in the order of time.

    Each says what throughputs there are, too: who needs both reads the log once.

    Args:
        directory: As `importing` wrote it.
        parts: Of its ledger.
        keys: What makes a pair: columns of text. Without an end a transfer is left out, without a user not.
        most_rows: Of a stretch; a day of many more is read in several.
    """
    waiting: deque[Future[Stretch]] = deque()
    with ThreadPoolExecutor(max(1, len(os.sched_getaffinity(0)))) as workers:
        for window in _windows(directory, parts, most_rows):
            waiting.append(workers.submit(_read, window, keys))
            if len(waiting) > _AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _windows(directory: Path, parts: Sequence[Part], most_rows: int) -> Iterator[_Window]:
    days: dict[str, list[Part]] = {}
    for part in sorted(parts, key=lambda part: (part.day, part.path)):
        days.setdefault(part.day, []).append(part)
    gathered: list[Part] = []
    for day, of_day in days.items():
        rows = sum(part.rows for part in of_day)
        if gathered and sum(part.rows for part in gathered) + rows > most_rows:
            yield _Window(paths=_paths(directory, gathered))
            gathered = []
        if rows > 2 * most_rows:
            first = int(datetime.fromisoformat(f"{day}T00:00:00Z").astimezone(UTC).timestamp()) * US
            cuts = np.linspace(first, first + DAY_US, -(-rows // most_rows) + 1).astype(np.int64)
            for low, high in pairwise(cuts.tolist()):
                yield _Window(paths=_paths(directory, of_day), bounds=(low, high))
        else:
            gathered += of_day
    if gathered:
        yield _Window(paths=_paths(directory, gathered))


def _paths(directory: Path, parts: Sequence[Part]) -> tuple[Path, ...]:
    return tuple(directory / part.path for part in parts)


def _read(window: _Window, keys: tuple[str, ...]) -> Stretch:
    read = [table for path in window.paths for table in _tables(path, keys, window.bounds)]
    # A file that was tidied by an earlier version says of no column that it is never empty.
    table = pa.concat_tables(read, promote_options="default").unify_dictionaries() if read else _none(keys)
    rates = _rates(*(table[name].to_numpy() for name in _TIMES))
    for key in keys[:2]:
        if table[key].null_count:
            table = table.filter(table[key].is_valid())
    start, end, size = (table[name].to_numpy() for name in _TIMES)
    if not len(start):
        heads = np.zeros(1, dtype=np.int64)
        return Stretch(pairs=[], heads=heads, start_us=start, end_us=end, bytes=size, rates_bps=rates)
    named = [_encoded(table[key]) for key in keys]
    codes = _pair_codes([codes for codes, _ in named], [len(words) for _, words in named])
    order = _order(codes, start)
    codes = codes[order]
    changes = np.ones(len(order), dtype=np.bool_)
    np.not_equal(codes[1:], codes[:-1], out=changes[1:])
    heads = np.flatnonzero(changes)
    firsts = order[heads]
    words = ([words[at] for at in each[firsts].tolist()] for each, words in named)
    return Stretch(
        pairs=list(zip(*words, strict=True)),
        heads=np.append(heads, len(order)),
        start_us=start[order],
        end_us=end[order],
        bytes=size[order],
        rates_bps=rates,
    )


def _none(keys: Sequence[str]) -> pa.Table:
    """Of a window in which nothing starts."""
    encoded = pa.dictionary(pa.int32(), pa.string())
    return pa.schema(
        [*((name, pa.int64()) for name in _TIMES), *((key, encoded) for key in keys)]
    ).empty_table()


def _rates(start: Whole, end: Whole, size: Whole) -> NDArray[np.float64]:
    """Throughputs, bit/s; those that took no time that the log can tell have none."""
    took = end - start
    if not took.all():
        took, size = took[took > 0], size[took > 0]
    found: NDArray[np.float64] = (8e6 * size) / took
    return found


def _tables(path: Path, keys: tuple[str, ...], bounds: tuple[int, int] | None) -> Iterator[pa.Table]:
    """What a file has of a window, row group by row group; those without any of it are not read."""
    with pq.ParquetFile(path, read_dictionary=list(keys)) as file:
        for number in range(file.num_row_groups):
            if bounds is not None and not _overlaps(file.metadata.row_group(number).column(0), bounds):
                continue
            table = file.read_row_group(number, columns=[*_TIMES, *keys], use_threads=False)
            if bounds is not None:
                start = table["start_us"].to_numpy()
                table = table.filter(pa.array((start >= bounds[0]) & (start < bounds[1])))
            yield table


def _overlaps(column: pq.ColumnChunkMetaData, bounds: tuple[int, int]) -> bool:
    """Whether a row group may have starts of a window: its first column is that of the starts."""
    known = column.statistics
    if known is None or not known.has_min_max:
        return True
    return bool(known.min < bounds[1] and known.max >= bounds[0])


def _encoded(column: pa.ChunkedArray) -> tuple[NDArray[np.int32], list[str]]:
    """Texts as numbers, and what they stand for; what is missing is an empty one."""
    whole = column.combine_chunks()
    words: list[str] = whole.dictionary.to_pylist()
    codes = whole.indices
    if codes.null_count:
        if "" not in words:
            words.append("")
        codes = codes.fill_null(words.index(""))
    found: NDArray[np.int32] = codes.to_numpy(zero_copy_only=False)
    return found, words


def _pair_codes(codes: Sequence[NDArray[np.int32]], sizes: Sequence[int]) -> NDArray[np.int32] | Whole:
    """Each pair as one number: as narrow as they all fit."""
    number = math.prod(sizes)
    if number.bit_length() > _BITS:
        # Those that there are, numbered.
        found: Whole = np.unique(np.stack(codes), axis=1, return_inverse=True)[1].reshape(-1)
        return found
    whole: NDArray[np.int32] | Whole = codes[0] if number < 1 << 31 else codes[0].astype(np.int64)
    for each, size in zip(codes[1:], sizes[1:], strict=True):
        whole = whole * whole.dtype.type(size) + each
    return whole


def _order(codes: NDArray[np.int32] | Whole, start: Whole) -> NDArray[np.intp]:
    """By codes, then by start: as one number where it fits, which a processor sorts many of at once."""
    first = int(start.min())
    bits = (int(start.max()) - first).bit_length()
    if int(codes.max()).bit_length() + bits > _BITS:
        return np.lexsort([start, codes])
    packed = codes.astype(np.int64)
    packed <<= bits
    packed += start
    packed -= first
    return np.argsort(packed)


# Of a whole number that is not negative.
_BITS = 63
