"""What was imported, opened for analyses written once, in Ibis: by DuckDB, or by a site's Spark cluster."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import duckdb
import ibis
import pyarrow as pa

from farlink_lab.logs.store import Part, reading
from farlink_lab.logs.transfer import NAMES, LogError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

DUCKDB = "duckdb"
# What DuckDB may hold; beyond that it goes to disk. Of 8 GiB it leaves room for everything else.
MEMORY_BYTES = 2_000_000_000
# Of what is kept of a transfer at most: a session. Where it would fill this part of the memory it is kept on
# the disk, packed, which is faster than what was meant for memory and had to go there.
_KEPT_BYTES, _KEPT_SHARE = 40, 0.5
# Of a result that goes by: a few columns of it stay in a processor's cache.
_BLOCK_ROWS = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Logs:
    """Imported transfers on an engine.

    Attributes:
        backend: Ibis's.
        transfers: The table of `transfer.SCHEMA`.
        name: The engine, as it was asked for.
        directory: Where the files of `parts` are.
        parts: The files that count.
        in_memory: Whether what is kept of them fits there.
    """

    backend: Any
    transfers: Any
    name: str
    directory: Path
    parts: tuple[Part, ...]
    in_memory: bool = True
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def kept(self, expression: Any) -> Any:
        """The expression, computed once for all that ask for it, as long as the engine is open."""
        if self.name == DUCKDB:
            # Ibis's own cache drops its tables when it is collected, which may be after the end.
            return self.backend.create_table(f"kept_{next(self._numbers)}", expression)
        return expression.cache()

    def taken(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Any:
        """Rows that were made in this process, kept as a table; for DuckDB."""
        name = f"kept_{next(self._numbers)}"
        connection = self.backend.con
        if self.in_memory:
            # It reads them where they are: a copy would take as long as to make them.
            connection.register(name, pa.Table.from_batches(batches, schema))
        else:
            connection.register("made", pa.RecordBatchReader.from_batches(schema, iter(batches)))
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM made")
            connection.unregister("made")
        return self.backend.table(name)

    @property
    def count(self) -> int:
        """How many transfers there are."""
        return sum(part.rows for part in self.parts)

    def batches(self, expression: Any) -> Iterator[pa.RecordBatch]:
        """A large result, block by block and in no order; for DuckDB."""
        # Ibis's own batches ask DuckDB for them by a name that its second version no longer has.
        relation = self.backend.con.sql(self.backend.compile(expression))
        for batch in relation.to_arrow_reader(_BLOCK_ROWS):
            if batch.num_rows:
                yield batch

    def rows(self, expression: Any) -> list[dict[str, Any]]:
        """A small result, row by row."""
        found: list[dict[str, Any]] = self.table(expression).to_pylist()
        return found

    def table(self, expression: Any) -> pa.Table:
        """A result as Arrow has it."""
        return expression.to_pyarrow()


@contextlib.contextmanager
def open_logs(
    directory: Path, *, engine: str = DUCKDB, memory_bytes: int = MEMORY_BYTES, threads: int | None = None
) -> Iterator[Logs]:
    """The transfers of a directory.

    Args:
        directory: As `importing` wrote it; a cluster must reach it by the same path.
        engine: `duckdb`, or the address of a cluster, as `spark://host:7077` or `local-cluster[2,1,1024]`.
        memory_bytes: That DuckDB may hold.
        threads: Of DuckDB; `None` for a processor each.

    Raises:
        LogError: where there are none, the engine cannot be had, or has too little memory or disk.
    """
    where = directory.resolve()
    with reading(where) as parts, _told(where, memory_bytes):
        opened = (
            _duckdb(where, parts, memory_bytes=memory_bytes, threads=threads)
            if engine == DUCKDB
            else _spark(where, parts, engine)
        )
        with opened as logs:
            yield logs


@contextlib.contextmanager
def _told(directory: Path, memory_bytes: int) -> Iterator[None]:
    """Says in one line what DuckDB lacks, and which file is gone."""
    try:
        yield
    except duckdb.OutOfMemoryException as error:
        raise LogError(
            f"--memory: {memory_bytes:,} bytes are too few for DuckDB ({_first_line(error)}): "
            "allow more, as in 2GB"
        ) from error
    except (duckdb.IOException, FileNotFoundError) as error:
        # Of other files that are gone a caller knows more.
        if isinstance(error, FileNotFoundError) and str(directory) not in str(error):
            raise
        raise LogError(
            f"{directory}: {_first_line(error)}: make room in {tempfile.gettempdir()} where that is full; "
            "where a file is gone, try again, and import the logs again where it stays so"
        ) from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


@contextlib.contextmanager
def _duckdb(
    where: Path, parts: tuple[Part, ...], *, memory_bytes: int, threads: int | None
) -> Iterator[Logs]:
    paths = [str(where / part.path) for part in parts]
    settings: dict[str, Any] = {} if threads is None else {"threads": threads}
    with tempfile.TemporaryDirectory(prefix="farlink-logs-") as spill:
        in_memory = sum(part.rows for part in parts) * _KEPT_BYTES <= _KEPT_SHARE * memory_bytes
        backend = ibis.duckdb.connect(
            ":memory:" if in_memory else f"{spill}/kept.duckdb",
            memory_limit=f"{memory_bytes}B",
            temp_directory=spill,
            preserve_insertion_order=False,
            **settings,
        )
        try:
            backend.raw_sql("SET enable_progress_bar = false")
            table = backend.read_parquet(paths, table_name="transfers", hive_partitioning=False)
            yield Logs(
                backend=backend,
                transfers=table.select(*NAMES),
                name=DUCKDB,
                directory=where,
                parts=parts,
                in_memory=in_memory,
            )
        finally:
            backend.disconnect()


@contextlib.contextmanager
def _spark(directory: Path, parts: tuple[Part, ...], address: str) -> Iterator[Logs]:
    if not address.startswith(("spark://", "local")):
        raise LogError(f'--engine: "{address}" is no engine: duckdb, or spark://HOST:PORT')
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415
    except ImportError as error:
        raise LogError(
            "--engine: PySpark is not installed: pip install 'farlink-lab[spark]' beside the lab, and Java 17"
        ) from error
    # Who has a session already, as a notebook of a cluster has, keeps it.
    theirs = SparkSession.getActiveSession()
    try:
        session = theirs or (
            SparkSession.builder.master(address)
            .appName("farlink lab logs")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .getOrCreate()
        )
    except Exception as error:
        raise LogError(f"--engine: {address}: no session: {spark_reason(str(error))}") from error
    try:
        backend = ibis.pyspark.connect(session)
        session.read.parquet(*(str(directory / part.path) for part in parts)).createOrReplaceTempView(
            "transfers"
        )
        table = backend.table("transfers").select(*NAMES)
        yield Logs(backend=backend, transfers=table, name=address, directory=directory, parts=parts)
    finally:
        if theirs is None:
            session.stop()


def spark_reason(text: str) -> str:
    """What Spark's error says: its first line names a call, the next the exception, and a stack follows."""
    lines = text.strip().splitlines() or [""]
    told = next((line for line in lines if line.startswith(": ")), lines[0])
    return told.removeprefix(": ")
