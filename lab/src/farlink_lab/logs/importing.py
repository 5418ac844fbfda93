"""Logs into a store: each file found out, read by blocks, judged in order, and told of."""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from farlink_lab.logs import gridftp, json_lines
from farlink_lab.logs.block import blocks
from farlink_lab.logs.checking import KINDS, Checked, agreeing, check, without_destination
from farlink_lab.logs.expansion import CutShortError, pieces
from farlink_lab.logs.store import REFUSED, Source, Store
from farlink_lab.logs.table_lines import Table
from farlink_lab.logs.transfer import SCHEMA, LogError, Refusal
from farlink_lab.logs.zone import Zone
from farlink_lab.places import mend_for_import
from farlink_lab.quantity import show_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from farlink_lab.logs.block import Block
    from farlink_lab.logs.mapping import Mapping
    from farlink_lab.logs.transfer import Parsed

# What is said of each note, after its number.
NOTES = {
    "no-destination": "name no source or no destination: no session can be made of them, the rest stands",
    "repeated-hour": "have a time in an hour that clocks showed twice: told apart by the order of the log",
    "mixed-zones": "have times without a zone among others with one: read as --zone says",
}
# Lines at the head of a log that are looked at to find out what it is.
_LOOKED_AT = 100
# Blocks that are being read at once: their memory is bounded.
_AHEAD = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What came of an import.

    Attributes:
        sources: Of the files, in their order.
        duplicates: Transfers that were there already, or twice in the files.
        rows: Transfers that the directory holds now.
        unreadable: A line for each file that could not be read at all.
    """

    sources: tuple[Source, ...]
    duplicates: int
    rows: int
    unreadable: tuple[str, ...]


def import_logs(files: Sequence[Path], *, out: Path, mapping: Mapping | None, zone: str) -> Imported:
    """Imports the files into `out`; the same line never counts twice.

    Raises:
        LogError: where `out` cannot be written to, or the mapping does not fit.
    """
    Zone(name=zone)
    sources: list[Source] = []
    unreadable: list[str] = []
    duplicates = 0
    with Store(out) as store, ThreadPoolExecutor(max(1, os.cpu_count() or 1)) as workers:
        # One that is named twice is read once.
        for path in dict.fromkeys(files):
            try:
                identity = identity_of(path)
                source = Source(name=str(path), identity=identity)
                _import(path, source, store=store, mapping=mapping, zone=Zone(name=zone), workers=workers)
            except OSError as error:
                unreadable.append(f"{path}: {error.strerror or error}: name a log that can be read")
                continue
            except UnknownLogError as error:
                unreadable.append(f"{path}: {error}")
                continue
            sources.append(source)
            store.replace(source)
        if sources:
            duplicates = store.commit()
        else:
            store.forsake()
        rows = store.ledger.rows
    return Imported(sources=tuple(sources), duplicates=duplicates, rows=rows, unreadable=tuple(unreadable))


class UnknownLogError(LogError):
    """A file that is no log of a format that is known."""


def identity_of(path: Path) -> tuple[int, int]:
    """Device and inode of a log.

    Raises:
        OSError: where it cannot be looked at.
        UnknownLogError: where it is a directory, a pipe or a device.
    """
    found = path.stat()
    if not path.is_file():
        raise UnknownLogError(f"not a regular file: {mend_for_import(path)}")
    return found.st_dev, found.st_ino


def reader_of(block: Block, *, mapping: Mapping | None, where: str) -> tuple[Callable[[Block], Parsed], bool]:
    """How the lines of a log are read, found out from its first block; and whether blocks must come in order.

    Raises:
        UnknownLogError: where none of its first lines is of a known format.
    """
    heads = list(islice(filter(bytes.strip, map(block.line, range(block.lines))), _LOOKED_AT))
    if mapping is None and any(gridftp.is_gridftp(line) for line in heads):
        return gridftp.parse, False
    if any(json_lines.is_json(line) for line in heads):
        return lambda each: json_lines.parse(each, mapping), False
    if mapping is not None:
        return Table(mapping=mapping, where=where).parse, True
    raise UnknownLogError(
        "neither lines of GridFTP (DATE=… NBYTES=…) nor JSON: for a table, --map FILE.toml says "
        "which column is what"
    )


def is_blank(block: Block) -> bool:
    """Whether a block has nothing that could tell what log it is of, as where its only line is too long."""
    return not block.data.strip()


def take(store: Store, source: Source, block: Block, parsed: Parsed, zone: Zone) -> None:
    """Judges what a block holds and gives it to the store: blocks of a log in order."""
    repeated = zone.repeated
    checked = check(parsed, zone)
    long = tuple(
        Refusal(index=index, kind="too-long", detail=f"begins {head[:60]!r}")
        for index, head in block.too_long
    )
    refused = (*checked.refused, *long)
    texts = {refusal.index: block.line(refusal.index) for refusal in refused}
    texts |= {index: head + b"..." for index, head in block.too_long}
    rows = checked.table.num_rows
    source.note("no-destination", without_destination(checked.table))
    source.note("repeated-hour", zone.repeated - repeated)
    if 0 < checked.unzoned < len(parsed.index):
        source.note("mixed-zones", checked.unzoned)
    source.lines += block.lines
    source.offset = block.end
    store.add(
        source,
        Checked(table=checked.table, refused=refused, unzoned=rows),
        texts,
        first_line=block.first_line,
    )


def _import(
    path: Path,
    source: Source,
    *,
    store: Store,
    mapping: Mapping | None,
    zone: Zone,
    workers: ThreadPoolExecutor,
) -> None:
    """Reads a whole file: several blocks at once, judged one after the other."""
    stream = blocks(pieces(path))
    waiting: deque[tuple[Block, Future[Parsed]]] = deque()
    read: Callable[[Block], Parsed] | None = None
    in_order = False
    for block in _until_cut(stream, store, source):
        if read is None:
            if is_blank(block):
                take(store, source, block, gridftp.parse(block), zone)
                continue
            read, in_order = reader_of(block, mapping=mapping, where=source.name)
        if in_order:
            take(store, source, block, read(block), zone)
            continue
        waiting.append((block, workers.submit(read, block)))
        while len(waiting) > _AHEAD:
            first, parsed = waiting.popleft()
            take(store, source, first, parsed.result(), zone)
    for block, parsed in waiting:
        take(store, source, block, parsed.result(), zone)


def _until_cut(stream: Iterator[Block], store: Store, source: Source) -> Iterator[Block]:
    """The blocks of a file; where it cannot be read on, that is a refused line of its own.

    Raises:
        UnknownLogError: where nothing of it can be read.
    """
    lines = 0
    try:
        for block in stream:
            lines = block.first_line + block.lines - 1
            yield block
    except CutShortError as error:
        if not lines:
            raise UnknownLogError(f"{error}, and no line of it can be read: get the log again") from None
        what = Refusal(index=0, kind="cut-short", detail=str(error))
        cut = Checked(table=SCHEMA.empty_table(), refused=(what,), unzoned=0)
        store.add(source, cut, {0: b""}, first_line=lines + 1)


def told(imported: Imported, *, out: Path) -> list[str]:
    """What an import came to, line by line; none where it came to nothing. Sizes of files are bytes."""
    said = []
    for source in imported.sources:
        said.append(
            f"{source.name}: {show_count(source.lines, 'line')}, {show_count(source.kept, 'transfer')}"
        )
        for words, counted in ((KINDS, source.refused), (NOTES, source.notes)):
            said += [
                f"  {number:,} {agreeing(number, words[name])}" for name, number in sorted(counted.items())
            ]
    if imported.duplicates:
        said.append(f"{show_count(imported.duplicates, 'duplicate')}, each kept once")
    if any(source.refused for source in imported.sources):
        said.append(f"refused lines: {out / REFUSED}")
    if imported.sources or imported.rows:
        said.append(f"{show_count(imported.rows, 'transfer')} in {out}")
    return said
