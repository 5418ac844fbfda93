"""Times of logs: digits and words to microseconds since 1970."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from farlink_lab.logs.transfer import US

if TYPE_CHECKING:
    from farlink_lab.logs.transfer import Mask, Whole

Digits = NDArray[np.uint8]

# GridFTP's: 20261121033608.253248
STAMP_LENGTH = 21
_STAMP = re.compile(r"(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(?:\.(\d{1,9}))?")
_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?\s*(Z|UTC|[+-]\d\d(?::?\d\d)?)?"
)
# A number below the first is of seconds, as people now live to see; above, of a finer unit each.
_UNITS = ((1e11, 1_000_000), (1e14, 1_000), (1e17, 1))


class StampError(ValueError):
    """A text that is no time."""


def stamps_us(digits: Digits) -> tuple[Whole, Mask]:
    """GridFTP's stamps, by columns of digits.

    Args:
        digits: Shape (rows, 21): the characters of `YYYYmmddHHMMSS.ffffff`.

    Returns:
        Microseconds since 1970 of the clock that wrote them, and which rows are times at all.
    """
    values = digits.astype(np.int32) - ord("0")
    point = values[:, 14] == ord(".") - ord("0")
    values[:, 14] = 0
    good: Mask = ((values >= 0) & (values <= 9)).all(axis=1) & point
    year = values[:, 0:4] @ np.array([1000, 100, 10, 1], dtype=np.int32)
    month, day, hour, minute, second = (values[:, at] * 10 + values[:, at + 1] for at in range(4, 14, 2))
    micros = values[:, 15:21] @ np.array([100_000, 10_000, 1_000, 100, 10, 1], dtype=np.int32)
    good &= (month >= 1) & (month <= 12) & (day >= 1) & (hour < 24) & (minute < 60) & (second <= 60)
    months = np.where(good, (year - 1970) * 12 + month - 1, 0)
    first, after = (_days(months + more) for more in (0, 1))
    good &= day <= after - first
    days = first + day - 1
    seconds = days * 86_400 + hour * 3600 + minute * 60 + second
    return seconds * US + micros, good


def _days(months: NDArray[np.int32]) -> Whole:
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def stamp_us(text: str) -> int:
    """One GridFTP stamp.

    Raises:
        StampError: where it is none.
    """
    found = _STAMP.fullmatch(text)
    if found is None:
        raise StampError(f"{_shown(text)} is no time such as 20261121033608.253248")
    year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
    return _from_parts(text, (year, month, day, hour, minute, second), found[7])


def moment_us(value: object) -> tuple[int, bool]:
    """A time as tables and JSON have it, and whether its zone is left unsaid.

    ISO 8601 with or without a zone, and numbers of seconds, milliseconds, microseconds or nanoseconds since
    1970, which their size tells apart.

    Raises:
        StampError: where it is none.
    """
    if isinstance(value, bool) or value is None:
        raise StampError(f"{_shown(value)} is no time")
    if isinstance(value, str):
        found = _ISO.fullmatch(value.strip())
        if found is not None:
            year, month, day, hour, minute = (int(part) for part in found.groups()[:5])
            micros = _from_parts(value, (year, month, day, hour, minute, int(found[6] or 0)), found[7])
            if found[8] is None:
                return micros, True
            return micros - _offset_us(found[8]), False
    try:
        number = float(value) if not isinstance(value, int) else value  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise StampError(
            f"{_shown(value)} is no time: write one as 2026-11-21T03:36:08Z, or in seconds since 1970"
        ) from None
    if not -1e20 < number < 1e20:
        raise StampError(f"{_shown(value)} is no time of this age")
    for bound, scale in _UNITS:
        if abs(number) < bound:
            return round(number * scale), False
    return round(number / 1000), False


def shown_us(micros: int) -> str:
    """A time for a person, in UTC; of any year."""
    try:
        moment = datetime.fromtimestamp(micros // US, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{micros / US:.0f} s after 1970"
    return f"{moment:%Y-%m-%d %H:%M:%S}Z"


def _from_parts(text: str, parts: tuple[int, int, int, int, int, int], fraction: str | None) -> int:
    year, month, day, hour, minute, second = parts
    try:
        # A leap second is the one after it, as POSIX has it.
        whole = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=UTC)
    except ValueError as error:
        raise StampError(f"{_shown(text)} is no time: {error}") from None
    if second > 60:
        raise StampError(f"{_shown(text)} is no time: second must be in 0..60")
    micros = int((fraction or "0").ljust(6, "0")[:6])
    # A time before 1970 has a negative number of seconds, which fromtimestamp and its inverse know.
    return (int(whole.timestamp()) + second - min(second, 59)) * US + micros


def _offset_us(zone: str) -> int:
    if zone in ("Z", "UTC"):
        return 0
    digits = zone[1:].replace(":", "").ljust(4, "0")
    minutes = int(digits[:2]) * 60 + int(digits[2:])
    return (-minutes if zone[0] == "-" else minutes) * 60 * US


def _shown(value: object) -> str:
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= 50 else f"{text[:46]}..."
