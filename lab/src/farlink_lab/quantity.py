"""Quantities as people write them: `91.6ms`, `10gbit`, `2GiB`, `1%`; the same words as on the command line.

A bare number where the unit would be a guess is refused; so are zero and absurd values.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from farlink_lab.error import LabError


class QuantityError(LabError):
    """A text that is no quantity of the kind that was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    name: str
    example: str
    units: dict[str, float]
    shown_units: str
    most: float
    shown_most: str


_TIME = _Kind(
    name="time",
    example="91.6ms",
    units={
        "ns": 1e-9,
        "us": 1e-6,
        "µs": 1e-6,
        "μs": 1e-6,
        "ms": 1e-3,
        "s": 1.0,
        "sec": 1.0,
        "m": 60.0,
        "min": 60.0,
        "h": 3600.0,
        "d": 86400.0,
    },
    shown_units="ns, us, ms, s, min, h, d",
    most=1e9,
    shown_most="31 years",
)
_RATE = _Kind(
    name="rate",
    example="10gbit",
    units={
        prefix + word + suffix: scale
        for prefix, scale in (("", 1.0), ("k", 1e3), ("m", 1e6), ("g", 1e9), ("t", 1e12))
        for word in ("bit", "b")
        for suffix in ("", "/s", "ps")
        if prefix or word == "bit"
    },
    shown_units="bit, kbit, mbit, gbit, tbit (per second)",
    most=10e12,
    shown_most="10tbit",
)
# Longer than any path on Earth, and by way of satellites: more is a slip in a unit.
MOST_RTT_S = 10.0
_SIZE = _Kind(
    name="size",
    example="2GiB",
    units={
        "b": 1.0,
        "byte": 1.0,
        "bytes": 1.0,
        "kb": 1e3,
        "mb": 1e6,
        "gb": 1e9,
        "tb": 1e12,
        "kib": 2.0**10,
        "mib": 2.0**20,
        "gib": 2.0**30,
        "tib": 2.0**40,
    },
    shown_units="B, KB, MB, GB, TB, KiB, MiB, GiB, TiB",
    most=2.0**60,
    shown_most="1048576TiB",
)

# The unit starts at the first letter that is not an exponent's: "1e3ms" is 1000 milliseconds.
_NUMBER = re.compile(r"([0-9.+-]+(?:[eE][+-]?[0-9]+)?)\s*(.*)", re.DOTALL)

# By a capital B people mean bytes: eight times as much.
_OF_BYTES = re.compile(
    r"((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*([KMGTkmgt])B(?:/[sS]|[pP][sS])?"
)


def parse_time(text: str) -> float:
    """Seconds of a time such as `91.6ms`, to the nanosecond.

    Raises:
        QuantityError: with the text, the reason and an example.
    """
    return round(_parsed(text, _TIME, lower=False) * 1e9) / 1e9


def parse_rtt(text: str) -> float:
    """Seconds of a round-trip time such as `91.6ms`: more than 0 and at most `MOST_RTT_S`.

    Raises:
        QuantityError: with the text, the reason and an example.
    """
    value = parse_time(text)
    if not 0 < value <= MOST_RTT_S:
        raise QuantityError(
            f"{_quoted(text)} is not an RTT: more than 0 and at most {MOST_RTT_S:.0f}s, as in 91.6ms"
        )
    return value


def parse_rate(text: str) -> int:
    """Bits per second of a rate such as `10gbit`; never zero.

    Raises:
        QuantityError: with the text, the reason and an example.
    """
    if found := _OF_BYTES.fullmatch(text.strip()):
        number, prefix = found.groups()
        bits = f"{_trimmed(float(number) * 8)}{prefix.lower()}bit"
        raise QuantityError(f"{_quoted(text)} is of bytes, and a rate is of bits: write it as {bits}")
    return _positive(text, _RATE)


def parse_size(text: str) -> int:
    """Bytes of a size such as `2GiB`; never zero.

    Raises:
        QuantityError: with the text, the reason and an example.
    """
    return _positive(text, _SIZE)


def parse_share(text: str) -> float:
    """A share from 0 to 1, written as `1%` or `0.01`.

    Raises:
        QuantityError: with the text, the reason and the mend.
    """
    number, scale = (text.strip()[:-1], 0.01) if text.strip().endswith("%") else (text, 1.0)
    try:
        value = float(number) * scale
    except ValueError:
        raise QuantityError(
            f"{_quoted(text)} is not a share: write a number and its unit, as in 1% or 0.01"
        ) from None
    if not 0.0 <= value <= 1.0:
        raise QuantityError(f"{_quoted(text)} is not a share: write 0% to 100%, or 0 to 1")
    return value


def show_time(seconds: float) -> str:
    """A time for a person: `91.6 ms`."""
    for scale, unit, least in ((1.0, "s", 1.0), (1e-3, "ms", 1e-4), (1e-6, "µs", 1e-6)):
        if abs(seconds) >= least * 0.99999:
            return f"{_trimmed(seconds / scale)} {unit}"
    return "0 s" if seconds == 0 else f"{_trimmed(seconds * 1e9)} ns"


def show_rate(bits_per_second: float) -> str:
    """A rate for a person, three significant digits: `9.87 Gb/s`."""
    for scale, unit in ((1e9, "Gb/s"), (1e6, "Mb/s"), (1e3, "kb/s")):
        if abs(bits_per_second) >= scale * 0.9995:
            return f"{_significant(bits_per_second / scale)} {unit}"
    return f"{bits_per_second:.0f} b/s"


def show_size(size_bytes: float) -> str:
    """A size for a person, in the unit in which it is shortest: `2 GiB`, `10 GB`; else three digits."""
    exact = []
    for base, units in ((1024, ("TiB", "GiB", "MiB", "KiB")), (1000, ("TB", "GB", "MB", "kB"))):
        for power, unit in zip((4, 3, 2, 1), units, strict=True):
            value = size_bytes / base**power
            if value >= 1 and (value * 8).is_integer():
                exact.append(f"{_trimmed(value)} {unit}")
    if exact:
        return min(exact, key=lambda shown: len(shown.split()[0]))
    for power, unit in ((4, "TB"), (3, "GB"), (2, "MB"), (1, "kB")):
        if size_bytes >= 1000**power:
            return f"{_significant(size_bytes / 1000**power)} {unit}"
    return f"{size_bytes:.0f} B"


def write_rate(bits_per_second: int) -> str:
    """A rate as a command line takes it, in the largest unit of which it is a whole number: `10gbit`."""
    return _whole_units(bits_per_second, (("gbit", 10**9), ("mbit", 10**6), ("kbit", 10**3)), least="bit")


def write_size(size_bytes: int) -> str:
    """A size as a command line takes it, in the unit in which it is the shortest whole number: `64MiB`."""
    binary = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
    decimal = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3))
    written = [_whole_units(size_bytes, units, least="B") for units in (binary, decimal)]
    return min(written, key=lambda each: len(each.rstrip("TGMKkiB")))


def _whole_units(number: int, units: tuple[tuple[str, int], ...], *, least: str) -> str:
    unit, scale = next((each for each in units if number % each[1] == 0), (least, 1))
    return f"{number // scale}{unit}"


def show_count(number: int, noun: str) -> str:
    """A number of things for a person: `1 record`, `2 records`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _positive(text: str, kind: _Kind) -> int:
    value = round(_parsed(text, kind, lower=True))
    if value == 0:
        raise QuantityError(f"{_quoted(text)} is zero: a {kind.name} is more than that, as in {kind.example}")
    return value


def _parsed(text: str, kind: _Kind, *, lower: bool) -> float:
    found = _NUMBER.fullmatch(text.strip())
    number, unit = found.groups() if found else ("", "")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if value < 0:
        raise QuantityError(
            f"{_quoted(text)} is below zero, which no {kind.name} is: write one as in {kind.example}"
        )
    if math.isnan(value):
        raise QuantityError(
            f"{_quoted(text)} is not a {kind.name}: write a number and its unit, as in {kind.example}"
        )
    if not unit:
        raise QuantityError(f"{_quoted(text)} has no unit: write it as in {kind.example}")
    scale = kind.units.get(unit.strip().lower() if lower else unit.strip())
    if scale is None:
        raise QuantityError(
            f"{_quoted(text)} is not a {kind.name}: unit {_quoted(unit)} is none of {kind.shown_units}"
        )
    if value * scale > kind.most:
        raise QuantityError(f"{_quoted(text)} is out of range: a {kind.name} is at most {kind.shown_most}")
    return value * scale


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _trimmed(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".")


def _significant(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 99.95 else f"{value:.3g}" if abs(value) < 1 else f"{value:#.3g}"
