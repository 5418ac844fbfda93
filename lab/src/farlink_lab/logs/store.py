"""A directory of imported transfers: Parquet by day of start, and the ledger that says which files count.

What is written counts from the moment at which the ledger is replaced, all at once: whoever reads meanwhile,
or comes after a crash, sees the state before or after. Files that no ledger names are what a crash left, or
what someone still reads: they are removed when nobody does.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
import uuid
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import IO, TYPE_CHECKING, Any, Self

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from farlink_lab.logs.transfer import DAY_US, NAMES, SCHEMA, LogError
from farlink_lab.places import LEDGER, mend_for_logs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from farlink_lab.logs.checking import Checked
    from farlink_lab.logs.transfer import Whole

REFUSED = "refused.jsonl"
# Rows that are gathered before files are written: a log's usual order puts them into few days.
FLUSH_ROWS = 1_000_000
# A day of more files is made one.
MOST_PARTS = 8
_SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A file of transfers of one day."""

    path: str
    day: str
    rows: int


@dataclass(slots=True, kw_only=True)
class Source:
    """A log that was imported, or is followed.

    Attributes:
        name: Its path, as it was given.
        identity: Device and inode; a log that was rotated is another.
        offset: Bytes of it that were read, up to a whole line.
        head: A digest of its first bytes, of one that is followed.
        lines: That were read.
        earlier: Of those, lines of files that had the name before this one.
        kept: Lines that became transfers.
        refused: Lines that did not, by their kind.
        notes: What else was counted: see `importing.NOTES`.
    """

    name: str
    identity: tuple[int, int]
    offset: int = 0
    head: str = ""
    lines: int = 0
    earlier: int = 0
    kept: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    notes: dict[str, int] = field(default_factory=dict)

    def count(self, kinds: Iterable[str]) -> None:
        """Adds refused lines."""
        for kind in kinds:
            self.refused[kind] = self.refused.get(kind, 0) + 1

    def note(self, name: str, more: int) -> None:
        """Adds to what else is counted."""
        if more:
            self.notes[name] = self.notes.get(name, 0) + more


@dataclass(slots=True, kw_only=True)
class Ledger:
    """What a directory holds.

    Attributes:
        parts: The files of transfers.
        sources: The logs, each name once.
        duplicates: Transfers that came more than once, but for those that came again with their log.
    """

    parts: list[Part] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    duplicates: int = 0

    @property
    def rows(self) -> int:
        """Transfers in all."""
        return sum(part.rows for part in self.parts)


def read_ledger(directory: Path) -> Ledger:
    """What the directory holds.

    Raises:
        LogError: where it is no directory of imported logs.
    """
    path = directory / LEDGER
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["schema"] != _SCHEMA:
            raise LogError(f"{path}: schema {data['schema']} is not {_SCHEMA}: import the logs again")
        return Ledger(
            parts=[Part(**part) for part in data["parts"]],
            sources=[Source(**{**each, "identity": tuple(each["identity"])}) for each in data["sources"]],
            duplicates=data["duplicates"],
        )
    except OSError as error:
        raise LogError(f"{path}: {error.strerror}: {mend_for_logs(directory)}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise LogError(f"{path}: no ledger of imported logs ({error}): import the logs again") from error


def counted_parts(directory: Path) -> tuple[Part, ...]:
    """The files of transfers that count.

    Raises:
        LogError: where there are none, or one is gone.
    """
    ledger = read_ledger(directory)
    if not ledger.rows:
        raise LogError(
            f"{directory}: no transfer in it: "
            + (
                f"{REFUSED} there has the lines that were refused"
                if (directory / REFUSED).exists()
                else f"'farlink lab logs import FILE --out {directory}' adds some"
            )
        )
    for part in ledger.parts:
        path = directory / part.path
        if not path.exists():
            raise LogError(f"{path}: named in the ledger and not there: import the logs again")
    return tuple(ledger.parts)


@contextlib.contextmanager
def reading(directory: Path) -> Iterator[tuple[Part, ...]]:
    """The files of transfers that count; while it lasts, no import removes one of them.

    Raises:
        LogError: as `counted_parts`.
    """
    with contextlib.ExitStack() as held:
        # Where it is not there, or the file system knows no locks, it is read without: nothing is written.
        with contextlib.suppress(OSError):
            fcntl.flock(held.enter_context((directory / _READERS).open("rb")), fcntl.LOCK_SH)
        yield counted_parts(directory)


def part_paths(directory: Path) -> list[Path]:
    """Where the files of transfers that count are.

    Raises:
        LogError: where there are none, or one is gone.
    """
    return [directory / part.path for part in counted_parts(directory)]


class Store:
    """The writing end: a context that no other importer can enter meanwhile.

    `add` what was read, then `commit`; without that nothing of it counts.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ledger = Ledger()
        self._gathered: dict[str, list[pa.Table]] = {}
        self._gathered_rows = 0
        self._new: list[Part] = []
        self._aside: list[str] = []
        self._whole: list[str] = []
        self._reread = 0
        self._made: list[Path] = []
        self._forsaken = self._is_new = False
        self._lock: IO[str] | None = None
        self._readers: IO[str] | None = None

    def __enter__(self) -> Self:
        try:
            self._made = [each for each in (self.directory, *self.directory.parents) if not each.exists()]
            self.directory.mkdir(parents=True, exist_ok=True)
            begun = (self.directory / _LOCK).exists()
            self._lock = (self.directory / _LOCK).open("a")
            self._take_possession(begun=begun)
        except OSError as error:
            self._unlock()
            raise LogError(
                f"{self.directory}: {error.strerror}: name a directory that can be written to"
            ) from error
        except LogError:
            self._unlock()
            raise
        return self

    def _take_possession(self, *, begun: bool) -> None:
        """Makes sure that the directory is ours alone: what no ledger names is removed only then."""
        assert self._lock is not None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise LogError(f"{self.directory}: another import writes into it: wait for its end") from None
        if (self.directory / LEDGER).exists():
            self.ledger = read_ledger(self.directory)
        else:
            found = sorted(path.name for path in self.directory.iterdir() if not path.name.startswith("."))
            if found:
                if not begun:
                    (self.directory / _LOCK).unlink()
                raise LogError(
                    f"{self.directory}: holds something else ({found[0]}), and no {LEDGER} that says what "
                    "was imported: name a new directory for --out"
                )
            self._is_new = True
            # From here on a directory with days and without a ledger is none that an import left.
            self._replace_ledger(self.ledger)
        self._readers = (self.directory / _READERS).open("a")
        self._clear()

    def _unlock(self) -> None:
        for file in (self._readers, self._lock):
            if file is not None:
                file.close()

    def __exit__(self, *_: object) -> None:
        # What cannot be removed now is by who enters next.
        with contextlib.suppress(OSError):
            self._clear()
            if self._forsaken:
                self._remove()
        self._unlock()

    def forsake(self) -> None:
        """Has nothing of a directory left that was made for this import, into which nothing came."""
        self._forsaken = self._is_new

    def _remove(self) -> None:
        for name in (LEDGER, _READERS, _LOCK):
            (self.directory / name).unlink(missing_ok=True)
        for made in self._made:
            made.rmdir()

    def add(self, source: Source, checked: Checked, texts: Mapping[int, bytes], *, first_line: int) -> None:
        """Takes the transfers of a block, and keeps its refused lines, whose `texts` these are, aside.

        Raises:
            LogError: where the directory cannot be written to.
        """
        source.kept += checked.table.num_rows
        source.count(refusal.kind for refusal in checked.refused)
        for refusal in checked.refused:
            self._aside.append(
                _aside(
                    file=source.name,
                    line=first_line + refusal.index,
                    reason=refusal.kind,
                    detail=refusal.detail,
                    text=texts[refusal.index][:_MOST_ASIDE].decode("utf-8", "replace"),
                )
            )
        if checked.table.num_rows:
            for day, rows in _by_day(checked.table):
                self._gathered.setdefault(day, []).append(rows)
            self._gathered_rows += checked.table.num_rows
        with self._writing():
            if len(self._aside) > _ASIDE_AT_ONCE:
                self._put_aside()
            if self._gathered_rows >= FLUSH_ROWS:
                self._flush()

    def replace(self, source: Source) -> None:
        """Has a log that was read whole in the place of what was read under its name before."""
        self._whole.append(source.name)
        self._reread += sum(each.kept for each in self.ledger.sources if each.name == source.name)
        self.ledger.sources = [*(each for each in self.ledger.sources if each.name != source.name), source]

    def commit(self, *, tidy: bool = True) -> int:
        """Makes what was added count; the number of duplicates that were found.

        Args:
            tidy: Whether days that were added to are searched for duplicates and made one file; without it,
                only days of many files are.

        Raises:
            LogError: where the directory cannot be written to; then nothing of it counts.
        """
        with self._writing():
            return self._commit(tidy=tidy)

    def _commit(self, *, tidy: bool) -> int:
        self._flush()
        self._put_aside()
        parts = [*self.ledger.parts, *self._new]
        touched = {part.day for part in self._new}
        if tidy:
            crowded = Counter(part.day for part in parts)
            touched |= {day for day, files in crowded.items() if files > MOST_PARTS}
        duplicates = 0
        with (
            tempfile.TemporaryDirectory(dir=self.directory, prefix=".spill-") as spill,
            duckdb.connect(config={"memory_limit": _TIDY_MEMORY, "temp_directory": spill}) as engine,
        ):
            engine.execute("SET enable_progress_bar = false")
            for day in sorted(touched):
                of_day = [part for part in parts if part.day == day]
                if not tidy and len(of_day) <= _MOST_FOLLOWED:
                    continue
                made = self._tidied(engine, of_day)
                if made is not None:
                    duplicates += sum(part.rows for part in of_day) - made.rows
                    parts = [part for part in parts if part.day != day] + [made]
        # A log that is imported again brings its own transfers again: that is told once, and not kept.
        # First what is refused: should the ledger not be written, the next import puts the same there.
        self._keep_refused()
        self._replace_ledger(
            Ledger(
                parts=sorted(parts, key=lambda part: (part.day, part.path)),
                sources=self.ledger.sources,
                duplicates=self.ledger.duplicates + max(0, duplicates - self._reread),
            )
        )
        self._new, self._reread = [], 0
        with contextlib.suppress(OSError):
            self._clear()
        return duplicates

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Says in one line what hinders it; what could not be written is kept, and may be tried again."""
        try:
            yield
        except (OSError, duckdb.IOException, duckdb.OutOfMemoryException) as error:
            reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
            raise LogError(
                f"{self.directory}: {reason}: make room there, or let it be written to, and import again: "
                "what was imported before counts as it did"
            ) from error

    def _flush(self) -> None:
        for day in list(self._gathered):
            self._new.append(self._write(day, pa.concat_tables(self._gathered[day])))
            del self._gathered[day]
        self._gathered_rows = 0

    def _write(self, day: str, table: pa.Table) -> Part:
        path = self._new_path(day)
        pq.write_table(table, self.directory / path, **_LAYOUT)
        return Part(path=path, day=day, rows=table.num_rows)

    def _new_path(self, day: str) -> str:
        (self.directory / f"day={day}").mkdir(exist_ok=True)
        return f"day={day}/{uuid.uuid4().hex}.parquet"

    def _tidied(self, engine: duckdb.DuckDBPyConnection, parts: list[Part]) -> Part | None:
        """One file in place of several, without duplicates; nothing where there is nothing to tidy."""
        files = [str(self.directory / part.path) for part in parts]
        rows = sum(part.rows for part in parts)
        # Sixty-four bits of each row: two that differ are taken for one in a day once in a million
        # million days of a million rows, and then only looked at more closely.
        hashed = (
            f"SELECT count(DISTINCT hash({', '.join(NAMES)})) FROM read_parquet(?, hive_partitioning=false)"
        )
        (found,) = engine.execute(hashed, [files]).fetchall()
        if found[0] == rows and len(parts) <= MOST_PARTS:
            return None
        path = self._new_path(parts[0].day)
        kept = engine.sql(
            f"SELECT DISTINCT {', '.join(NAMES)} FROM read_parquet($files, hive_partitioning=false) "
            "ORDER BY start_us, end_us",
            params={"files": files},
        )
        # Not by DuckDB: its packed differences come with texts that Arrow cannot read as numbers.
        with pq.ParquetWriter(self.directory / path, SCHEMA, **_LAYOUT) as file:
            rows = 0
            for batch in kept.to_arrow_reader(_GROUP_ROWS):
                file.write_batch(batch.cast(SCHEMA))
                rows += batch.num_rows
        return Part(path=path, day=parts[0].day, rows=rows)

    def _replace_ledger(self, ledger: Ledger) -> None:
        data: dict[str, Any] = {
            "schema": _SCHEMA,
            "duplicates": ledger.duplicates,
            "sources": [
                {name: getattr(source, name) for name in Source.__slots__} for source in ledger.sources
            ],
            "parts": [{"path": part.path, "day": part.day, "rows": part.rows} for part in ledger.parts],
        }
        beside = self.directory / f".{LEDGER}.new"
        with beside.open("w", **_AS_JSON) as file:
            json.dump(data, file, ensure_ascii=False, indent=1)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self.directory / LEDGER)
        # Not before: files that this one does not name are removed.
        self.ledger = ledger

    def _put_aside(self) -> None:
        if self._aside:
            _append(self.directory / _REFUSED_NEW, ((line + "\n").encode(**_AS_JSON) for line in self._aside))
            self._aside = []

    def _keep_refused(self) -> None:
        """Adds what is newly refused to what was before, but for that of logs that were read whole."""
        old, new = self.directory / REFUSED, self.directory / _REFUSED_NEW
        if self._whole and old.exists():
            # As `add` begins a line.
            begun = tuple(_aside(file=name)[:-1].encode(**_AS_JSON) for name in self._whole)
            beside = self.directory / f".{REFUSED}.new"
            with beside.open("wb") as file, old.open("rb") as lines:
                file.writelines(line for line in lines if not line.startswith(begun))
                if new.exists():
                    with new.open("rb") as more:
                        file.writelines(more)
            beside.replace(old)
        elif new.exists():
            with new.open("rb") as more:
                _append(old, more)
        new.unlink(missing_ok=True)
        self._whole = []

    def _clear(self) -> None:
        """Removes what a crash left, and files that no ledger names: where someone reads, the next time."""
        assert self._readers is not None
        (self.directory / _REFUSED_NEW).unlink(missing_ok=True)
        try:
            fcntl.flock(self._readers, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        try:
            counted = {part.path for part in self.ledger.parts}
            for path in self.directory.glob("day=*/*.parquet"):
                if str(path.relative_to(self.directory)) not in counted:
                    path.unlink(missing_ok=True)
            for directory in self.directory.glob("day=*"):
                if not any(directory.iterdir()):
                    directory.rmdir()
        finally:
            fcntl.flock(self._readers, fcntl.LOCK_UN)


def _aside(**what: str | int) -> str:
    """A refused line as it is put aside; the file that has it comes first."""
    return json.dumps(what, ensure_ascii=False)


def _append(path: Path, lines: Iterable[bytes]) -> None:
    """Adds to a file, whole lines or none."""
    before = path.stat().st_size if path.exists() else 0
    try:
        with path.open("ab") as file:
            file.writelines(lines)
    except OSError:
        if path.exists():
            os.truncate(path, before)
        raise


def _by_day(table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each day (UTC) of start."""
    start: Whole = table["start_us"].to_numpy()
    days = start // DAY_US
    if (days[1:] < days[:-1]).any():
        order = np.argsort(days, kind="stable")
        table, days = table.take(pa.array(order)), days[order]
    edges = [0, *(np.flatnonzero(np.diff(days)) + 1), len(days)]
    for first, after in pairwise(edges):
        day = datetime.fromtimestamp(int(days[first]) * 86_400, UTC)
        yield f"{day:%Y-%m-%d}", table.slice(first, after - first)


# Of a refused line, bytes that are kept aside: all of any that a server wrote.
_MOST_ASIDE = 8192
_ASIDE_AT_ONCE = 10_000
# What every analysis reads. Their differences, packed into as few bits as a block of them needs, take as
# much room as zstd makes of them, and are read in a third of the time.
_PACKED = ("start_us", "end_us", "bytes")
_LAYOUT: dict[str, Any] = {
    "compression": {name: "none" if name in _PACKED else "zstd" for name in NAMES},
    "compression_level": {name: 1 for name in NAMES if name not in _PACKED},
    "column_encoding": dict.fromkeys(_PACKED, "DELTA_BINARY_PACKED"),
    # Columns that say few things again and again.
    "use_dictionary": [name for name in NAMES if name not in (*_PACKED, "file")],
}
# Of a day that was tidied: what an analysis of some of its hours reads at once.
_GROUP_ROWS = 131_072
# A character that is none (of a name of a file, or in JSON) is written as JSON escapes it.
_AS_JSON: dict[str, Any] = {"encoding": "utf-8", "errors": "backslashreplace"}
# Whoever writes holds the first; whoever reads the second, as others may at once.
_LOCK, _READERS = ".lock", ".readers"
# Refused lines of an import that does not count yet.
_REFUSED_NEW = ".refused.new"
# While a day is tidied: a day of more goes to the disk.
_TIDY_MEMORY = "2GB"
# Files of a day while it is followed: each commit adds one.
_MOST_FOLLOWED = 32
