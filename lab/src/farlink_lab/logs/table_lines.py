"""Tables of transfers (CSV), by a mapping file."""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from farlink_lab.logs import fields
from farlink_lab.logs.transfer import LogError, Rows

if TYPE_CHECKING:
    from farlink_lab.logs.block import Block
    from farlink_lab.logs.mapping import Mapping
    from farlink_lab.logs.transfer import Parsed


@dataclass(slots=True, kw_only=True)
class Table:
    """A table whose heading, where it has one, is the first line of its first block: give that block first.

    A row is a line: a quoted newline ends it.
    """

    mapping: Mapping
    where: str
    _places: dict[str, int] = field(default_factory=dict)
    _width: int = 0

    def parse(self, block: Block) -> Parsed:
        """The transfers of a block.

        Raises:
            LogError: where the heading lacks a column of the mapping.
        """
        rows = Rows()
        long = dict(block.too_long)
        for at in range(block.lines):
            line = block.line(at)
            if at in long or not line.strip():
                continue
            try:
                cells = self._cells(line)
            except ValueError as error:
                rows.refuse(at, "broken", str(error))
                continue
            if not self._places and self._head(cells):
                continue
            if len(cells) != self._width:
                rows.refuse(at, "broken", f"{len(cells)} columns where the heading has {self._width}")
                continue
            fields.add(rows, at, self.mapping, lambda name, cells=cells: cells[self._places[name]])  # type: ignore[misc]
        return rows.parsed()

    def _cells(self, line: bytes) -> list[str]:
        text = line.decode("utf-8-sig")
        if '"' not in text:
            return text.split(self.mapping.delimiter)
        try:
            return next(csv.reader([text], delimiter=self.mapping.delimiter, strict=True))
        except csv.Error as error:
            raise ValueError(str(error)) from None

    def _head(self, cells: list[str]) -> bool:
        """Learns where the columns are; whether `cells` were their names."""
        names = self.mapping.names or tuple(cell.strip() for cell in cells)
        self._width = len(names)
        self._places = {name: place for place, name in enumerate(names)}
        wanted = [column.name for column in self.mapping.columns.values()] + list(self.mapping.only)
        for name in wanted:
            if name not in self._places:
                shown = ", ".join(names)[:200]
                raise LogError(
                    f"{self.where}: no column {name!r}, which the mapping names: there are {shown}"
                )
        return not self.mapping.names
