"""One transfer from named values, as a mapping says: for tables and JSON alike."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from farlink_lab.logs.stamp import StampError, moment_us
from farlink_lab.logs.transfer import COUNTS, NUMBERS, SCHEMA, TEXTS, US

if TYPE_CHECKING:
    from collections.abc import Callable

    from farlink_lab.logs.mapping import Column, Mapping
    from farlink_lab.logs.transfer import Rows

# Far beyond any that is believed later, and far from where whole numbers end.
_MOST_DURATION_S = 1e11
# Of any number that fits, and its sign.
_MOST_DIGITS = 20
_MOST = {"int32": (1 << 31) - 1, "int64": (1 << 63) - 1}
# As records say that the user ended a transfer, and the kind of line that this is.
_INTERRUPTED = "interrupted"


class FieldError(ValueError):
    """A value that is not of the type that its place needs."""


def add(rows: Rows, index: int, mapping: Mapping, value_of: Callable[[str], Any]) -> None:
    """Adds the transfer whose values `value_of` gives, or the reason why there is none."""
    for name, allowed in mapping.only.items():
        said = value_of(name)
        if str(said) not in allowed:
            rows.refuse(
                index, _INTERRUPTED if said == _INTERRUPTED else "failed", f"{name} is {_shown(said)}"
            )
            return
    try:
        row, local = _row(mapping, value_of)
    except FieldError as error:
        rows.refuse(index, "wrong-type", str(error))
        return
    rows.add(index, row, local=local)


def _row(mapping: Mapping, value_of: Callable[[str], Any]) -> tuple[dict[str, Any], bool]:
    """The values of a transfer, and whether its times name no zone."""
    columns = mapping.columns
    start, local = _moment(columns["start"], value_of)
    if "end" in columns:
        end, end_local = _moment(columns["end"], value_of)
        if end_local != local:
            raise FieldError("of start and end, one has a zone and one has none")
    else:
        end = start + _duration_us(columns["duration"], value_of)
    size = _count("bytes", columns["bytes"], value_of)
    if size is None:
        raise FieldError(f"{columns['bytes'].name} is missing")
    row: dict[str, Any] = {"start_us": start, "end_us": end, "bytes": size}
    for name, column in columns.items():
        if name in TEXTS:
            row[name] = _text(value_of(column.name))
        elif name in COUNTS:
            row[name] = _count(name, column, value_of)
        elif name in NUMBERS:
            number = _number(name, value_of(column.name))
            row[name] = None if number is None else number * (column.scale or 1.0)
    return row, local


def _duration_us(column: Column, value_of: Callable[[str], Any]) -> int:
    took = _number(column.name, value_of(column.name))
    if took is None:
        raise FieldError(f"{column.name} is missing")
    took *= column.scale or 1.0
    if abs(took) > _MOST_DURATION_S:
        raise FieldError(f"{column.name}: {took:g} s is out of range")
    return round(took * US)


def _moment(column: Column, value_of: Callable[[str], Any]) -> tuple[int, bool]:
    value = value_of(column.name)
    if value is None or value == "":
        raise FieldError(f"{column.name} is missing")
    try:
        if column.format is None:
            return moment_us(value)
        moment = datetime.strptime(str(value), column.format)  # noqa: DTZ007
    except (StampError, ValueError) as error:
        raise FieldError(f"{column.name}: {error}") from None
    local = moment.tzinfo is None
    since = (moment.replace(tzinfo=UTC) if local else moment) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * US + since.microseconds, local


def _count(name: str, column: Column, value_of: Callable[[str], Any]) -> int | None:
    value = value_of(column.name)
    if value is None or value == "":
        return None
    number: float
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?\d+\s*", value):
        if len(value.strip()) > _MOST_DIGITS:
            raise FieldError(f"{column.name}: {_shown(value)} is out of range")
        number = int(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        number = value
    else:
        number = _number(column.name, value) or 0.0
        if column.scale is None and not number.is_integer():
            raise FieldError(f"{column.name}: {_shown(value)} is not a whole number")
    whole = number if column.scale is None else number * column.scale
    most = _MOST[str(SCHEMA.field(name).type)]
    if abs(whole) > most:
        raise FieldError(f"{column.name}: {_shown(value)} is out of range")
    return round(whole)


def _number(name: str, value: object) -> float | None:
    if value is None or value == "":
        return None
    try:
        number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise FieldError(f"{name}: {_shown(value)} is not a number")
    return number


def _text(value: object) -> str | None:
    if value is None or value in ("", "-"):
        return None
    if isinstance(value, dict | list):
        raise FieldError(f"{_shown(value)} is not a text")
    # Half a character, as JSON can have it, is none.
    return str(value).encode("utf-8", "replace").decode()


def _shown(value: object) -> str:
    text = f'"{value}"' if isinstance(value, str) else repr(value)
    return text if len(text) <= 44 else f"{text[:40]}..."
