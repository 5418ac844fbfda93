"""What was imported, opened for analyses written once, in Ibis: by DuckDB, or by a site's Spark cluster."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import ibis
import pyarrow as pa

from farlink_lab.logs.store import part_paths
from farlink_lab.logs.transfer import NAMES, LogError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

DUCKDB = "duckdb"
# What DuckDB may hold; beyond that it goes to disk. Of 8 GiB it leaves room for everything else.
MEMORY_LIMIT = "2GB"
# Rows of a stream that are in hand at once.
_BATCH_ROWS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Logs:
    """Imported transfers on an engine.

    Attributes:
        backend: Ibis's.
        transfers: The table of `transfer.SCHEMA`.
        name: The engine, as it was asked for.
    """

    backend: Any
    transfers: Any
    name: str
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def kept(self, expression: Any) -> Any:
        """The expression, computed once for all that ask for it, as long as the engine is open."""
        if self.name == DUCKDB:
            # Ibis's own cache drops its tables when it is collected, which may be after the end.
            return self.backend.create_table(f"kept_{next(self._numbers)}", expression)
        return expression.cache()

    def streamed(
        self,
        expression: Any,
        through: Callable[[Iterator[pa.RecordBatch]], Iterable[pa.RecordBatch]],
        schema: pa.Schema,
    ) -> Any:
        """What a function makes of an expression's rows, kept; for DuckDB, which need not hold them all."""
        name = f"kept_{next(self._numbers)}"
        relation = self.backend.con.sql(self.backend.compile(expression))
        reader = relation.to_arrow_reader(_BATCH_ROWS)
        # A connection reads one result at a time: what is made of it goes back by another.
        with self.backend.con.cursor() as writer:
            made = pa.RecordBatchReader.from_batches(schema, through(iter(reader)))
            writer.register("made", made)
            writer.execute(f"CREATE TABLE {name} AS SELECT * FROM made")
        return self.backend.table(name)

    def rows(self, expression: Any) -> list[dict[str, Any]]:
        """A small result, row by row."""
        found: list[dict[str, Any]] = self.table(expression).to_pylist()
        return found

    def table(self, expression: Any) -> pa.Table:
        """A result as Arrow has it."""
        return expression.to_pyarrow()


@contextlib.contextmanager
def open_logs(
    directory: Path, *, engine: str = DUCKDB, memory: str = MEMORY_LIMIT, threads: int | None = None
) -> Iterator[Logs]:
    """The transfers of a directory.

    Args:
        directory: As `importing` wrote it; a cluster must reach it by the same path.
        engine: `duckdb`, or the address of a cluster, as `spark://host:7077` or `local-cluster[2,1,1024]`.
        memory: That DuckDB may hold.
        threads: Of DuckDB; `None` for a processor each.

    Raises:
        LogError: where there are none, or the engine cannot be had.
    """
    paths = [str(path.resolve()) for path in part_paths(directory)]
    if engine != DUCKDB:
        with _spark(paths, engine) as logs:
            yield logs
        return
    settings: dict[str, Any] = {} if threads is None else {"threads": threads}
    with tempfile.TemporaryDirectory(prefix="farlink-logs-") as spill:
        backend = ibis.duckdb.connect(
            memory_limit=memory, temp_directory=spill, preserve_insertion_order=False, **settings
        )
        backend.raw_sql("SET enable_progress_bar = false")
        table = backend.read_parquet(paths, table_name="transfers", hive_partitioning=False)
        try:
            yield Logs(backend=backend, transfers=table.select(*NAMES), name=engine)
        finally:
            backend.disconnect()


@contextlib.contextmanager
def _spark(paths: Sequence[str], address: str) -> Iterator[Logs]:
    if not address.startswith(("spark://", "local")):
        raise LogError(f'--engine: "{address}" is no engine: duckdb, or spark://HOST:PORT')
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415
    except ImportError as error:
        raise LogError(
            "--engine: PySpark is not installed: pip install 'farlink-lab[spark]' beside the lab, and Java 17"
        ) from error
    try:
        session = (
            SparkSession.builder.master(address)
            .appName("farlink lab logs")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.ui.enabled", "false")
            .getOrCreate()
        )
    except Exception as error:
        line = str(error).strip().splitlines()
        raise LogError(
            f"--engine: {address}: no session: {line[0] if line else type(error).__name__}"
        ) from error
    try:
        backend = ibis.pyspark.connect(session)
        session.read.parquet(*paths).createOrReplaceTempView("transfers")
        yield Logs(backend=backend, transfers=backend.table("transfers").select(*NAMES), name=address)
    finally:
        session.stop()
