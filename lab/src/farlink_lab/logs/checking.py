"""Which rows are transfers that can be believed, and what is wrong with the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from farlink_lab.logs.stamp import shown_us
from farlink_lab.logs.transfer import NAMES, SCHEMA, Refusal

if TYPE_CHECKING:
    from farlink_lab.logs.transfer import Mask, Parsed, Whole
    from farlink_lab.logs.zone import Zone

# Before it no such log was written: a clock that was not set.
EARLIEST_US = 631_152_000 * 1_000_000
# After it nobody now living reads one: milliseconds that were read as seconds.
LATEST_US = 4_102_444_800 * 1_000_000
# Longer than any transfer: 30 days.
MOST_DURATION_US = 30 * 86_400 * 1_000_000
# Of no file that any store holds (9 PB); beyond it JSON and floating point no longer tell sizes apart.
MOST_SIZE = 1 << 53

# What is said of each kind of refused line, after their number.
KINDS = {
    "broken": "cannot be read",
    "wrong-type": "have text where a number belongs, or a number out of range",
    "too-long": "are longer than 1 MiB",
    "cut-short": "stood where a compressed file ends before its end, or a file cannot be read on",
    "failed": "are of transfers that failed",
    "interrupted": "are of transfers that were interrupted",
    "no-file": "move no file (listings and commands)",
    "no-transfer": "are JSON of no shape that is known: a --map says what the fields mean",
    "zero-size": "have a size of zero",
    "negative-size": "have a size below zero",
    "too-large": "have a size above 2^53 bytes",
    "ends-first": "end before they start",
    "wrong-year": "have a time before 1990 or after 2099: a clock that was not set, or another unit",
    "too-slow": "last longer than 30 days",
    "skipped-hour": "have a local time that clocks skipped: is --zone right?",
}
# How the words of one line begin, or of one transfer.
_OF_ONE = {
    "are of transfers that were": "is of a transfer that was",
    "are of transfers": "is of a transfer",
    "are": "is",
    "have": "has",
    "move": "moves",
    "end": "ends",
    "last": "lasts",
    "name": "names",
}


def agreeing(number: int, words: str) -> str:
    """What is said of so many lines or transfers, as `KINDS` has it of several."""
    begun = next((many for many in _OF_ONE if words.startswith(f"{many} ")), None)
    return words if number != 1 or begun is None else _OF_ONE[begun] + words[len(begun) :]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The rows that stand, and the lines that do not."""

    table: pa.Table
    refused: tuple[Refusal, ...]
    unzoned: int


def check(parsed: Parsed, zone: Zone) -> Checked:
    """The transfers of a block, in UTC; blocks of a log must come in order."""
    refused = list(parsed.refused)
    if not len(parsed.index):
        return Checked(table=SCHEMA.empty_table(), refused=tuple(refused), unzoned=0)
    start, end = _numbers(parsed, "start_us"), _numbers(parsed, "end_us")
    size = _numbers(parsed, "bytes")
    skipped = np.zeros(len(start), dtype=np.bool_)
    unzoned = int(parsed.local.sum())
    if unzoned and not zone.is_utc:
        here = parsed.local
        start, end = start.copy(), end.copy()
        start[here], end[here], skipped[here] = zone.to_utc(start[here], end[here])
    columns = {**parsed.columns, "start_us": pa.array(start), "end_us": pa.array(end)}
    standing = np.ones(len(start), dtype=np.bool_)
    for kind, wrong in (
        ("wrong-year", _outside(start) | _outside(end)),
        ("skipped-hour", skipped),
        ("ends-first", end < start),
        ("too-slow", end - start > MOST_DURATION_US),
        ("negative-size", size < 0),
        ("zero-size", size == 0),
        ("too-large", size > MOST_SIZE),
    ):
        for at in np.flatnonzero(wrong & standing):
            detail = _detail(kind, int(start[at]), int(end[at]), int(size[at]))
            refused.append(Refusal(index=int(parsed.index[at]), kind=kind, detail=detail))
        standing &= ~wrong
    table = _table(columns, len(start))
    if not standing.all():
        table = table.filter(pa.array(standing))
    return Checked(table=table, refused=tuple(refused), unzoned=unzoned)


def _table(columns: dict[str, pa.Array], rows: int) -> pa.Table:
    arrays = []
    for name in NAMES:
        kind = SCHEMA.field(name).type
        column = columns.get(name)
        if column is None:
            column = pa.nulls(rows, kind)
        elif column.type != kind:
            column = column.cast(kind)
        arrays.append(column)
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def without_destination(table: pa.Table) -> int:
    """How many transfers have no source or no destination: no session can be made of them."""
    if not table.num_rows:
        return 0
    lacking = pc.or_(pc.is_null(table["source"]), pc.is_null(table["destination"]))
    return int(pc.sum(lacking).as_py() or 0)


def _numbers(parsed: Parsed, name: str) -> Whole:
    found: Whole = parsed.columns[name].to_numpy(zero_copy_only=False)
    return found


def _outside(times: Whole) -> Mask:
    return (times < EARLIEST_US) | (times >= LATEST_US)


def _detail(kind: str, start: int, end: int, size: int) -> str:
    if kind in ("negative-size", "zero-size", "too-large"):
        return f"{size} bytes"
    return f"from {shown_us(start)} to {shown_us(end)}"
