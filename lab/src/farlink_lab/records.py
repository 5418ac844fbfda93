"""Transfer records from JSON Lines: checked once here, right ever after; what is not known is `None`."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from farlink_lab.error import LabError
from farlink_lab.places import mend_for_records
from farlink_lab.quantity import show_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

Array = NDArray[np.float64]

KINDS = ("memory", "file", "mount", "mpi", "cast", "feed")
MODES = ("size", "duration")
OUTCOMES = ("ok", "failed", "interrupted")
# RFC 791: every link carries so much.
LEAST_MTU = 68
# What arrays of whole numbers hold; and of any number, digits that a floating-point number can have.
_MOST_WHOLE, _MOST_DIGITS = 2**63 - 1, 308
# Of all text fields, these are in every record.
_NEEDED = ("id", "started", "tool", "version")

# An escape of half a character: with the other half beside it they are a whole one.
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class RecordsError(LabError):
    """A file of records that cannot be read at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How late the emulator's packets left during a transfer, seconds.

    `stolen_s` are the CPU seconds that the host of this virtual machine gave to others meanwhile; `None`
    where it does not say.
    """

    late_max_s: float
    late_p99_s: float
    overrun: bool
    stolen_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Record:
    """One transfer.

    Attributes:
        line: Number of its line in the file, from 1.
        asked_s: Of mode `duration`, the time that was asked for, where `duration_s` is another.
        samples: Shape (n, 2): bytes that arrived in the interval that ends t seconds after the first byte
            might leave.
        cpu_s: CPU seconds of (sender, receiver); `None` where one of them is not known.
        label: The lab's name of the configuration; `None` for records that no campaign made.
        run: The lab's identity of the run.
        streams_chosen: Whether nobody said how many `streams` there were to be, and the path decided.
        congestion_chosen: Whether the sender chose its congestion control by the path.
        limit_bps: The payload a second that its user allowed it; `None` where it was to be as fast as it can.
        fields: The whole object as it was read, with the fields that this version does not know.
    """

    line: int
    id: str
    kind: str
    mode: str
    started: str
    bytes: int
    duration_s: float | None
    asked_s: float | None
    setup_s: float | None
    rtt_s: float | None
    rate_bps: float | None
    goodput_bps: float | None
    mtu: int | None
    streams: int | None
    congestion: str | None
    buffer_bytes: int | None
    tool: str
    version: str
    outcome: str
    error: str | None
    retransmits: int | None
    cpu_s: tuple[float, float] | None
    samples: Array
    emulator: Health | None
    label: str | None
    run: str | None
    streams_chosen: bool
    congestion_chosen: bool
    limit_bps: float | None
    fields: Mapping[str, Any]

    @property
    def throughput_bps(self) -> float | None:
        """Θ of the transfer: payload bits that arrived, per second."""
        return 8 * self.bytes / self.duration_s if self.duration_s else None

    @property
    def amount(self) -> float:
        """What ended it: bytes (mode `size`) or the seconds asked for (`duration`); 0 where unknown."""
        if self.mode == "size":
            return float(self.bytes)
        return self.asked_s or self.duration_s or 0.0

    @property
    def overrun(self) -> bool:
        """Whether the emulator fell behind: the run says more of it than of the connection."""
        return self.emulator is not None and self.emulator.overrun


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenLine:
    """A line that is no record, and why."""

    number: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.number}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a file of records held."""

    records: tuple[Record, ...]
    broken: tuple[BrokenLine, ...]


def read_records(path: Path) -> Reading:
    """The records of the file at `path`, and the lines that are none.

    Raises:
        RecordsError: where the file cannot be read.
    """
    try:
        # A device or a pipe could be read for ever.
        if path.exists() and not path.is_file():
            raise RecordsError(f"{path}: not a regular file: {mend_for_records(path.parent)}")
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise RecordsError(f"{path}: {error.strerror}: {mend_for_records(path.parent)}") from error
    return parse_lines(lines)


def read_campaign(path: Path) -> Reading:
    """As `read_records`, for those who need at least one record.

    Raises:
        RecordsError: where there is none, too.
    """
    reading = read_records(path)
    if not reading.records:
        if reading.broken:
            first, *others = reading.broken
            more = f", and {show_count(len(others), 'more broken line')}" if others else ""
            raise RecordsError(f"{path}: no record in it: {first}{more}: {mend_for_records(path.parent)}")
        raise RecordsError(f"{path}: no record in it: run 'farlink lab profile' first")
    return reading


def parse_lines(lines: Iterable[bytes]) -> Reading:
    """The records of `lines`, and those that are none; empty lines are neither."""
    records: list[Record] = []
    broken: list[BrokenLine] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            records.append(parse_record(line, line=number))
        except ValueError as error:
            broken.append(BrokenLine(number=number, reason=str(error)))
    return Reading(records=tuple(records), broken=tuple(broken))


def parse_record(text: bytes, *, line: int = 1) -> Record:
    """The record of one line.

    Raises:
        ValueError: with the field and the reason.
    """
    try:
        data = _parsed(text.decode())
        if _SURROGATE.search(text):
            # Half a character, as JSON can have it, is none.
            data = _parsed(json.dumps(data, ensure_ascii=False).encode("utf-8", "replace").decode())
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start + 1}") from error
    except json.JSONDecodeError as error:
        raise ValueError(
            f"not JSON at column {error.colno}: {error.msg[0].lower()}{error.msg[1:]}"
        ) from error
    except RecursionError as error:
        raise ValueError("not a record: nested too deeply") from error
    if not isinstance(data, dict):
        raise ValueError("not a record: a record is a JSON object")
    return _record(_Fields(data), line=line)


def _parsed(text: str) -> Any:
    return json.loads(text, parse_constant=_refuse_constant, parse_int=_bounded, parse_float=_finite)


def _refuse_constant(word: str) -> float:
    raise ValueError(f"not JSON: {word} is no number there")


def _bounded(word: str) -> int:
    """A whole number that is a number of any other kind, too."""
    if len(word) > _MOST_DIGITS:
        raise ValueError(f"not a record: {_cut(word)} is a number of {len(word)} digits, which nothing has")
    return int(word)


def _finite(word: str) -> float:
    value = float(word)
    if not math.isfinite(value):
        raise ValueError(f"not a record: {_cut(word)} is larger than any number that can be told")
    return value


def _record(fields: _Fields, *, line: int) -> Record:
    data = fields.data
    for key in _NEEDED:
        if fields.text(key) is None:
            raise ValueError(f"not a record: {key} is missing")
    mtu = fields.whole("mtu")
    if mtu is not None and mtu < LEAST_MTU:
        raise ValueError(f"mtu: {mtu} is below {LEAST_MTU}, the least of IP")
    # Of these, analyses take what `Record.fields` has.
    fields.text("framing")
    fields.number("queue_bytes")
    fields.number("background_bps")
    lab, emulator = fields.inner("lab"), fields.inner("emulator")
    cpu = fields.inner("cpu_s")
    moved, duration_s = fields.whole("bytes") or 0, fields.number("duration_s")
    if duration_s and not math.isfinite(8 * moved / duration_s):
        raise ValueError(f"duration_s: {duration_s:g} s are too short for {moved} bytes")
    return Record(
        line=line,
        id=data["id"],
        kind=fields.choice("kind", KINDS),
        mode=fields.choice("mode", MODES),
        started=data["started"],
        bytes=moved,
        duration_s=duration_s,
        asked_s=fields.number("asked_s"),
        setup_s=fields.number("setup_s"),
        rtt_s=fields.number("rtt_s"),
        rate_bps=fields.number("rate_bps"),
        goodput_bps=fields.number("goodput_bps"),
        mtu=mtu,
        streams=fields.whole("streams"),
        congestion=fields.text("congestion"),
        buffer_bytes=fields.whole("buffer_bytes"),
        tool=data["tool"],
        version=data["version"],
        outcome=fields.choice("outcome", OUTCOMES),
        error=fields.text("error"),
        retransmits=fields.whole("retransmits"),
        cpu_s=None
        if cpu is None
        else _both(*(cpu.number(end, most=_MOST_WHOLE) for end in ("sender", "receiver"))),
        samples=_samples(data.get("samples", [])),
        emulator=None
        if emulator is None
        else Health(
            late_max_s=emulator.needed("late_max_s"),
            late_p99_s=emulator.needed("late_p99_s"),
            overrun=data["emulator"].get("overrun") is True,
            stolen_s=emulator.number("stolen_s"),
        ),
        label=None if lab is None else lab.text("configuration"),
        run=None if lab is None else lab.text("run"),
        streams_chosen=data.get("streams_chosen") is True,
        congestion_chosen=data.get("congestion_chosen") is True,
        limit_bps=fields.number("limit_bps"),
        fields=data,
    )


def _both(sender: float | None, receiver: float | None) -> tuple[float, float] | None:
    return None if sender is None or receiver is None else (sender, receiver)


class _Fields:
    """The fields of an object, each of the type that it is read as or absent."""

    def __init__(self, data: Mapping[str, Any], *, where: str = "") -> None:
        self.data, self.where = data, where

    def text(self, key: str) -> str | None:
        value = self.data.get(key)
        if value is not None and not isinstance(value, str):
            raise ValueError(f"{self.where}{key}: {_shown(value)} is not a text")
        return value

    def number(self, key: str, *, most: float = math.inf) -> float | None:
        value = self.data.get(key)
        if value is None:
            return None
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
            or value < 0
        ):
            raise ValueError(f"{self.where}{key}: {_shown(value)} is not a number of at least 0")
        if value > most:
            raise ValueError(f"{self.where}{key}: {_shown(value)} is out of range: at most 2^63 - 1")
        return float(value)

    def needed(self, key: str) -> float:
        value = self.number(key)
        if value is None:
            raise ValueError(f"{self.where}{key} is missing")
        return value

    def whole(self, key: str) -> int | None:
        value = self.data.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise ValueError(f"{self.where}{key}: {_shown(value)} is not a whole number of at least 0")
        if value is not None and value > _MOST_WHOLE:
            raise ValueError(f"{self.where}{key}: {_shown(value)} is out of range: at most 2^63 - 1")
        return value

    def choice(self, key: str, choices: tuple[str, ...]) -> str:
        value = self.data.get(key)
        if value not in choices:
            raise ValueError(f"{self.where}{key}: {_shown(value)} is none of {', '.join(choices)}")
        return str(value)

    def inner(self, key: str) -> _Fields | None:
        value = self.data.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise ValueError(f"{self.where}{key}: {_shown(value)} is not an object")
        return _Fields(value, where=f"{self.where}{key}.")


def _samples(value: object) -> Array:
    message = "samples: not a list of [seconds, bytes]"
    try:
        samples = np.array(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(message) from None
    if samples.size == 0:
        return np.empty((0, 2))
    if samples.ndim != 2 or samples.shape[1] != 2 or not np.isfinite(samples).all():
        raise ValueError(message)
    if (samples < 0).any() or (np.diff(samples[:, 0]) <= 0).any():
        raise ValueError("samples: times must grow and bytes be at least 0")
    took_s = np.diff(samples[:, 0], prepend=0)
    with np.errstate(over="ignore"):
        rates = 8 * samples[took_s > 0, 1] / took_s[took_s > 0]
    if (samples[:, 1] > _MOST_WHOLE).any() or not np.isfinite(rates).all():
        raise ValueError("samples: out of range: at most 2^63 - 1 bytes, and not in no time")
    return samples


def _cut(word: str) -> str:
    return word if len(word) <= 12 else f"{word[:12]}..."


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 40 else f"{text[:37]}..."
