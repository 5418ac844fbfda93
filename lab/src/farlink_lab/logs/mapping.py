"""Mapping files: which column of a table, or field of JSON, is what of a transfer.

[columns]
start = "began"              # or { name = "began", format = "%d.%m.%Y %H:%M:%S" }
end = "finished"             # or duration = { name = "took", unit = "ms" }
bytes = { name = "size", unit = "MiB" }
source = "from"
destination = "to"

[only]
state = ["DONE"]             # other lines are of transfers that failed
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from farlink_lab.logs.transfer import COUNTS, NUMBERS, TEXTS, LogError

if TYPE_CHECKING:
    from collections.abc import Mapping as Items
    from pathlib import Path

SIZE_UNITS = {
    "B": 1, "kB": 1000, "MB": 1000**2, "GB": 1000**3, "TB": 1000**4,
    "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
}  # fmt: skip
TIME_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_FIELDS = ("start", "end", "duration", "bytes", *TEXTS, *COUNTS, *NUMBERS)
_KEYS = {"name", "unit", "format"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """Where a value is, and in what unit or format.

    Attributes:
        name: Of the column; in JSON, dots lead into objects.
        scale: Bytes, or seconds, of one; `None` where there is no unit.
        format: Of a time, as in strptime; `None` for ISO 8601 and numbers.
    """

    name: str
    scale: float | None = None
    format: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """What a mapping file says.

    Attributes:
        columns: By what they are of a transfer.
        only: Columns, and what they must be of a transfer that went well.
        delimiter: Between columns of a table.
        names: Of the columns of a table without a heading; empty where its first line has them.
    """

    columns: Items[str, Column]
    only: Items[str, tuple[str, ...]]
    delimiter: str = ","
    names: tuple[str, ...] = ()


def read_mapping(path: Path) -> Mapping:
    """The mapping of that file.

    Raises:
        LogError: with what is wrong in it.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LogError(f"{path}: {error.strerror}: name a mapping file for --map") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LogError(f"{path}: not TOML: {error}") from error
    return _mapping(data, str(path))


def _mapping(data: dict[str, Any], where: str) -> Mapping:
    for key in data:
        if key not in ("columns", "only", "delimiter", "names"):
            raise LogError(f"{where}: {key}: a mapping has columns, only, delimiter and names")
    given = data.get("columns")
    if not isinstance(given, dict):
        raise LogError(f"{where}: [columns] is missing: it says which column is start, end, bytes, …")
    columns = {name: _column(name, value, where) for name, value in given.items()}
    for name in ("start", "bytes"):
        if name not in columns:
            raise LogError(f"{where}: columns.{name} is missing")
    if ("end" in columns) == ("duration" in columns):
        raise LogError(f"{where}: columns has one of end and duration")
    delimiter = data.get("delimiter", ",")
    if (
        not isinstance(delimiter, str)
        or len(delimiter) != 1
        or not delimiter.isascii()
        or delimiter in '"\n\r'
    ):
        raise LogError(f"{where}: delimiter: {delimiter!r} is not one ASCII character other than a quote")
    names = data.get("names", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise LogError(f"{where}: names: a list of the columns' names, in their order")
    return Mapping(columns=columns, only=_only(data, where), delimiter=delimiter, names=tuple(names))


def _column(name: str, value: object, where: str) -> Column:
    if name not in _FIELDS:
        raise LogError(f"{where}: columns.{name} is none of {', '.join(_FIELDS)}")
    spelt = {"name": value} if isinstance(value, str) else value
    if not isinstance(spelt, dict) or not isinstance(spelt.get("name"), str):
        raise LogError(f'{where}: columns.{name}: write "column" or {{ name = "column", unit = "MiB" }}')
    for key in spelt:
        if key not in _KEYS:
            raise LogError(f"{where}: columns.{name}.{key}: a column has name, unit and format")
    unit, form = spelt.get("unit"), spelt.get("format")
    if form is not None and (name not in ("start", "end") or not isinstance(form, str)):
        raise LogError(f"{where}: columns.{name}.format is of start and end alone, as in %Y-%m-%d %H:%M:%S")
    return Column(name=spelt["name"], scale=_scale(name, unit, where), format=form)


def _scale(name: str, unit: object, where: str) -> float | None:
    if unit is None:
        return None
    units: Items[str, float] = {}
    if name in ("bytes", "block_bytes", "buffer_bytes"):
        units = SIZE_UNITS
    elif name == "duration" or name.endswith("_s"):
        units = TIME_UNITS
    if not isinstance(unit, str) or unit not in units:
        allowed = f"none of {', '.join(units)}" if units else "not asked for there"
        raise LogError(f"{where}: columns.{name}.unit: {unit!r} is {allowed}")
    return units[unit]


def _only(data: dict[str, Any], where: str) -> dict[str, tuple[str, ...]]:
    given = data.get("only", {})
    if not isinstance(given, dict):
        raise LogError(f'{where}: only: columns and what they must be, as in state = ["DONE"]')
    found = {}
    for name, values in given.items():
        listed = values if isinstance(values, list) else [values]
        if not listed or not all(isinstance(value, str | int) for value in listed):
            raise LogError(f'{where}: only.{name}: a list of texts, as in ["DONE"]')
        found[name] = tuple(str(value) for value in listed)
    return found
