"""The columns of an imported transfer, and what a reader of lines hands on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from farlink_lab.error import LabError

if TYPE_CHECKING:
    from collections.abc import Sequence

Whole = NDArray[np.int64]
Mask = NDArray[np.bool_]

# Times are microseconds since 1970 in UTC: what GridFTP's logs have, and whole numbers on every engine.
SCHEMA = pa.schema(
    [
        pa.field("start_us", pa.int64(), nullable=False),
        pa.field("end_us", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("source", pa.string()),
        pa.field("destination", pa.string()),
        pa.field("server", pa.string()),
        pa.field("user", pa.string()),
        pa.field("file", pa.string()),
        pa.field("streams", pa.int32()),
        pa.field("stripes", pa.int32()),
        pa.field("block_bytes", pa.int64()),
        pa.field("buffer_bytes", pa.int64()),
        pa.field("retransmits", pa.int64()),
        pa.field("rtt_s", pa.float64()),
        pa.field("sender_cpu_s", pa.float64()),
        pa.field("receiver_cpu_s", pa.float64()),
        pa.field("read_s", pa.float64()),
        pa.field("write_s", pa.float64()),
    ]
)
US = 1_000_000
DAY_US = 86_400 * US
NAMES: tuple[str, ...] = tuple(SCHEMA.names)
TEXTS = ("source", "destination", "server", "user", "file")
NUMBERS = ("rtt_s", "sender_cpu_s", "receiver_cpu_s", "read_s", "write_s")
COUNTS = ("streams", "stripes", "block_bytes", "buffer_bytes", "retransmits")


class LogError(LabError):
    """A log, or a directory of imported logs, that cannot be used at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A line that became no transfer.

    Attributes:
        index: Of its line within the block that was read, from 0.
        kind: A key of `checking.KINDS`.
        detail: What was wrong with this one.
    """

    index: int
    kind: str
    detail: str


@dataclass(slots=True, kw_only=True)
class Parsed:
    """What the lines of a block hold, before it is judged.

    Attributes:
        columns: An Arrow array, all of the same length, for each column that the log has.
        index: Shape (rows,): the line of each row within the block, growing.
        local: Shape (rows,): whether the row's times are in the log's zone, still to be made UTC.
        refused: The lines that are no rows.
    """

    columns: dict[str, pa.Array]
    index: Whole
    local: Mask
    refused: list[Refusal] = field(default_factory=list)


class Rows:
    """Rows that are read one by one, and what comes of them."""

    def __init__(self) -> None:
        self._values: dict[str, list[Any]] = {name: [] for name in NAMES}
        self._index: list[int] = []
        self._local: list[bool] = []
        self.refused: list[Refusal] = []

    def add(self, index: int, values: dict[str, Any], *, local: bool) -> None:
        """Adds a row: a value, or nothing, for each of `NAMES`."""
        self._index.append(index)
        self._local.append(local)
        for name, column in self._values.items():
            column.append(values.get(name))

    def refuse(self, index: int, kind: str, detail: str) -> None:
        """Notes a line that is no row."""
        self.refused.append(Refusal(index=index, kind=kind, detail=detail))

    def parsed(self) -> Parsed:
        """All that was added."""
        return Parsed(
            columns={name: pa.array(self._values[name], SCHEMA.field(name).type) for name in NAMES},
            index=np.array(self._index, dtype=np.int64),
            local=np.array(self._local, dtype=np.bool_),
            refused=self.refused,
        )


def joined(parts: Sequence[Parsed]) -> Parsed:
    """Several as one, in the order of their lines; a column that one lacks is absent there."""
    full = [part for part in parts if len(part.index)] or list(parts[:1])
    names = [name for name in NAMES if any(name in part.columns for part in full)]
    index = np.concatenate([part.index for part in full])
    columns = {name: pa.concat_arrays([_column(part, name) for part in full]) for name in names}
    local = np.concatenate([part.local for part in full])
    if len(full) > 1:
        order = np.argsort(index, kind="stable")
        index, local = index[order], local[order]
        columns = {name: column.take(pa.array(order)) for name, column in columns.items()}
    return Parsed(
        columns=columns,
        index=index,
        local=local,
        refused=[refusal for part in parts for refusal in part.refused],
    )


def _column(part: Parsed, name: str) -> pa.Array:
    kind = SCHEMA.field(name).type
    column = part.columns.get(name)
    if column is None:
        return pa.nulls(len(part.index), kind)
    return column if column.type == kind else column.cast(kind)
