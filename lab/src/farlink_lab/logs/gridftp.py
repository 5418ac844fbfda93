"""GridFTP transfer logs, as `globus-gridftp-server -log-transfer` writes them.

A line is `DATE=… HOST=… PROG=… NL.EVNT=FTP_INFO START=… USER=… FILE=… BUFFER=… BLOCK=… NBYTES=… VOLUME=…
STREAMS=… STRIPES=… DEST=[…] TYPE=STOR|RETR CODE=226 TASKID=… retrans=…`, in UTC whatever the server's zone.
Lines of one shape are taken apart by columns; what does not fit there, one by one.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from farlink_lab.logs.block import MOST_LINE_BYTES, blocks
from farlink_lab.logs.stamp import STAMP_LENGTH, StampError, stamp_us, stamps_us
from farlink_lab.logs.transfer import Parsed, Rows, joined

if TYPE_CHECKING:
    from collections.abc import Callable

    from farlink_lab.logs.block import Block
    from farlink_lab.logs.transfer import Mask, Whole

# Without one of these a line tells no transfer.
_NEEDED = ("DATE", "START", "NBYTES", "TYPE", "CODE")
_READ = (*_NEEDED, "HOST", "USER", "FILE", "BUFFER", "BLOCK", "STREAMS", "STRIPES", "DEST", "retrans")
_COUNTS = {"STREAMS": "streams", "STRIPES": "stripes", "BLOCK": "block_bytes", "BUFFER": "buffer_bytes"}
# What follows a blank in the name of a file is taken for a key where it looks like one.
_KEY = re.compile(r"(?:^|(?<= ))([A-Z][A-Z.]+|retrans)=")
# STOR and ESTO write at the server, RETR and ERET read from it; 226 says that all went well.
_IN, _OUT = ("STOR", "ESTO"), ("RETR", "ERET")
_DONE = "226"
_MOST = (1 << 63) - 1
_MOST_OF = {"STREAMS": (1 << 31) - 1, "STRIPES": (1 << 31) - 1}
# Of any number that fits, and its sign.
_MOST_DIGITS = 20
_NEWLINE, _RETURN = b"\n\r"
# A log has lines of few shapes (in stream mode there is no retrans); a few lines are read one by one.
_MOST_SHAPES = 4
_FEW = 100


def is_gridftp(line: bytes) -> bool:
    """Whether a line looks like one of such a log."""
    return line.startswith(b"DATE=") and b" NBYTES=" in line


def parse(block: Block) -> Parsed:
    """The transfers of a block; their times are in the log's zone."""
    parts: list[Parsed] = []
    # Where each line of what is left stands in the block.
    places, left = np.arange(block.lines), block
    torn = _torn(block)
    if len(torn):
        places = np.delete(places, torn)
        left = _of(block, places)
    for _ in range(_MOST_SHAPES):
        shape = _shape(left)
        if shape is None:
            break
        columns, index, odd = _by_columns(left, shape)
        if not len(index):
            break
        parts.append(Parsed(columns=columns, index=places[index], local=np.ones(len(index), dtype=np.bool_)))
        places = places[odd]
        if len(odd) < _FEW:
            break
        left = _of(left, odd)
    rows = Rows()
    long = dict(block.too_long)
    for at in map(int, np.union1d(places, torn)):
        line = block.line(at)
        if at not in long and line.strip():
            _one(rows, at, line)
    return joined([*parts, rows.parsed()])


def _torn(block: Block) -> Whole:
    """The lines with a carriage return before their end, which Arrow takes for the end of a line."""
    if block.data.count(b"\r") == block.data.count(b"\r\n"):
        return np.empty(0, dtype=np.int64)
    data = np.frombuffer(block.data, np.uint8)
    returns = np.flatnonzero(data == _RETURN)
    bare = returns[np.append(data[1:], _RETURN)[returns] != _NEWLINE]
    return np.unique(np.searchsorted(block.newlines, bare))


def _of(block: Block, places: Whole) -> Block:
    """Some lines of a block."""
    data = b"".join(block.line(int(at)) + b"\n" for at in places)
    return next(iter(blocks([data])), replace(block, data=b"", newlines=places))


def _shape(block: Block) -> tuple[str, ...] | None:
    """The keys of the first line that has all that is needed, in their order."""
    for at in range(min(block.lines, 100)):
        line = block.line(at).decode("utf-8", "replace")
        parts = line.split(" ")
        keys = tuple(match[1] for match in map(_KEY.match, parts) if match)
        if len(keys) == len(parts) == len(set(keys)) and set(_NEEDED) <= set(keys):
            return keys
    return None


def _by_columns(block: Block, shape: tuple[str, ...]) -> tuple[dict[str, pa.Array], Whole, Whole]:
    """The columns of the lines of that shape, their lines, and the lines that must be read one by one."""
    broken: list[int] = []

    def note(row: csv.InvalidRow) -> str:
        broken.append(row.number - 1)
        return "skip"

    read = [key for key in shape if key in _READ]
    try:
        table = csv.read_csv(
            pa.BufferReader(block.data),
            read_options=csv.ReadOptions(
                column_names=list(shape), use_threads=False, block_size=len(block.data) + 1
            ),
            parse_options=csv.ParseOptions(
                delimiter=" ", quote_char=False, escape_char=False, ignore_empty_lines=False,
                invalid_row_handler=note,
            ),
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(read, pa.binary()), include_columns=read,
                strings_can_be_null=False, null_values=[], check_utf8=False,
            ),
        ).combine_chunks()  # fmt: skip
    except pa.ArrowInvalid:
        return {}, np.empty(0, dtype=np.int64), np.arange(block.lines)
    index = np.delete(np.arange(block.lines), broken)
    # What does not begin with its key is another line; so is one whose numbers are no numbers.
    good = np.ones(len(index), dtype=np.bool_)
    values: dict[str, pa.Array] = {}
    for key in read:
        column = table.column(key).combine_chunks() if table.num_rows else pa.array([], pa.binary())
        prefix = f"{key}=".encode()
        good &= _bools(pc.starts_with(column, pattern=prefix))
        # Without an end, Arrow reckons the size of the result with an overflow.
        values[key] = pc.binary_slice(column, len(prefix), MOST_LINE_BYTES)
    for key in ("START", "DATE"):
        good &= _numpy(pc.binary_length(values[key])) == STAMP_LENGTH
    values, index, good = _kept(values, index, good)
    whole: dict[str, Whole] = {}
    for key in ("START", "DATE"):
        whole[key], sound = stamps_us(_characters(values[key]))
        good &= sound
    numbers: dict[str, pa.Array] = {}
    for key in ("NBYTES", *_COUNTS):
        if key in values:
            numbers[key], sound = _counts(values[key], most=_MOST_OF.get(key, _MOST))
            good &= sound
    types = values["TYPE"].dictionary_encode()
    inward = _bools(_by_word(types, lambda word: word in _IN, pa.bool_()))
    good &= inward | _bools(_by_word(types, lambda word: word in _OUT, pa.bool_()))
    good &= _bools(pc.equal(values["CODE"], pa.scalar(_DONE.encode(), pa.binary())))
    texts = {key: _text(values[key]) for key in ("HOST", "USER", "DEST", "FILE") if key in values}
    good &= np.logical_and.reduce([sound for _, sound in texts.values()], initial=True)
    columns: dict[str, pa.Array] = {
        "start_us": pa.array(whole["START"]),
        "end_us": pa.array(whole["DATE"]),
        "bytes": numbers["NBYTES"],
        **{_COUNTS[key]: numbers[key] for key in _COUNTS if key in numbers},
    }
    nothing = pa.nulls(len(index), pa.string())
    host = texts["HOST"][0] if "HOST" in texts else nothing
    far = (
        _by_word(texts["DEST"][0].dictionary_encode(), _address, pa.string()) if "DEST" in texts else nothing
    )
    mask = pa.array(inward)
    columns |= {
        "source": pc.if_else(mask, far, host),
        "destination": pc.if_else(mask, host, far),
        "server": host,
    }
    columns |= {name: texts[key][0] for key, name in (("USER", "user"), ("FILE", "file")) if key in texts}
    if "retrans" in values:
        columns["retransmits"] = _by_word(values["retrans"].dictionary_encode(), _sum, pa.int64())
    kept, lines, _ = _kept(columns, index, good)
    odd = np.ones(block.lines, dtype=np.bool_)
    odd[lines] = False
    return kept, lines, np.flatnonzero(odd)


def _one(rows: Rows, index: int, line: bytes) -> None:
    """Reads one line by its keys: a name of a file may have blanks."""
    text = line.decode("utf-8", "replace")
    found = list(_KEY.finditer(text))
    ends = [*(match.start() - 1 for match in found[1:]), len(text)] if found else []
    values = {match[1]: text[match.end() : end] for match, end in zip(found, ends, strict=True)}
    missing = [key for key in _NEEDED if key not in values]
    if missing:
        what = "no key=value in it" if not values else f"{missing[0]} is missing"
        rows.refuse(index, "broken", what)
        return
    try:
        start, end = stamp_us(values["START"]), stamp_us(values["DATE"])
        counts: dict[str, Any] = {
            name: _count(key, values[key]) for key, name in _COUNTS.items() if values.get(key)
        }
        size = _count("NBYTES", values["NBYTES"])
    except StampError as error:
        rows.refuse(index, "broken", f"time {error}")
        return
    except ValueError as error:
        rows.refuse(index, "wrong-type", str(error))
        return
    kind, code = values["TYPE"], values["CODE"]
    if kind not in (*_IN, *_OUT):
        rows.refuse(index, "no-file", f"TYPE={kind} moves no file")
        return
    if code != _DONE:
        rows.refuse(index, "failed", f"CODE={code} after {size} bytes")
        return
    host, far = values.get("HOST") or None, _address(values.get("DEST", ""))
    ends_of = (far, host) if kind in _IN else (host, far)
    row = {
        "start_us": start,
        "end_us": end,
        "bytes": size,
        "source": ends_of[0],
        "destination": ends_of[1],
        "server": host,
        "user": values.get("USER") or None,
        "file": values.get("FILE") or None,
        "retransmits": _sum(values["retrans"]) if "retrans" in values else None,
        **counts,
    }
    rows.add(index, row, local=True)


def _count(key: str, text: str) -> int:
    if not re.fullmatch(r"-?[0-9]+", text):
        raise ValueError(f'{key}="{text[:40]}" is not a whole number')
    if len(text) > _MOST_DIGITS or abs(int(text)) > _MOST_OF.get(key, _MOST):
        raise ValueError(f"{key}={text[:40]} is out of range")
    return int(text)


def _address(text: str) -> str | None:
    """The far end of `[192.0.2.1]`; nothing where the log withholds it."""
    address = text.strip().strip("[]")
    return None if address in ("", "-", "0.0.0.0", "::", "(null)", "none") else address


def _sum(text: str) -> int | None:
    """Of the counts a stream, where they are counts."""
    parts = text.split(",")
    if not all(re.fullmatch(r"[0-9]{1,18}", part) for part in parts):
        return None
    whole = sum(map(int, parts))
    return whole if whole <= _MOST else None


def _counts(column: pa.Array, *, most: int) -> tuple[pa.Array, Mask]:
    """Whole numbers, and which are, and in range; the others are to be read one by one."""
    text = column.cast(pa.string(), safe=False) if column.type == pa.binary() else column
    try:
        numbers, sound = text.cast(pa.int64()), np.ones(len(column), dtype=np.bool_)
    except pa.ArrowInvalid:
        sound = _bools(pc.match_substring_regex(column, pattern=r"^-?[0-9]{1,18}$"))
        numbers = pc.if_else(pa.array(sound), text, "0").cast(pa.int64())
    if most < _MOST:
        near = pc.and_(pc.less_equal(numbers, most), pc.greater_equal(numbers, -most))
        sound &= _bools(near)
    return numbers, sound


def _text(column: pa.Array) -> tuple[pa.Array, Mask]:
    """Text, and which of it is UTF-8."""
    try:
        return column.cast(pa.string()), np.ones(len(column), dtype=np.bool_)
    except pa.ArrowInvalid:
        texts = [value.as_py().decode("utf-8", "replace") for value in column]
        return pa.array(texts, pa.string()), np.ones(len(column), dtype=np.bool_)


def _by_word(column: pa.DictionaryArray, function: Callable[[str], Any], kind: pa.DataType) -> pa.Array:
    """A function of text applied once to each different one."""
    words = [
        word.decode("utf-8", "replace") if isinstance(word, bytes) else word
        for word in column.dictionary.to_pylist()
    ]
    return pa.array([function(word) for word in words], kind).take(column.indices)


def _kept(values: dict[str, pa.Array], index: Whole, good: Mask) -> tuple[dict[str, pa.Array], Whole, Mask]:
    if good.all():
        return values, index, good
    mask = pa.array(good)
    return {key: column.filter(mask) for key, column in values.items()}, index[good], good[good]


def _characters(column: pa.Array) -> Any:
    """Shape (rows, 21): the characters of stamps that have that length."""
    data = b"" if not len(column) else column.buffers()[2]
    start = int(np.frombuffer(column.buffers()[1], np.int32)[column.offset]) if len(column) else 0
    flat = np.frombuffer(data, np.uint8)[start : start + STAMP_LENGTH * len(column)]
    return flat.reshape(-1, STAMP_LENGTH)


def _numpy(column: pa.Array) -> Any:
    return column.to_numpy(zero_copy_only=False)


def _bools(column: pa.Array) -> Mask:
    found: Mask = column.to_numpy(zero_copy_only=False)
    return found.astype(np.bool_)
