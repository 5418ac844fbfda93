"""Files as they lie there, compressed or not, as a stream of bytes whose memory is bounded."""

from __future__ import annotations

import bz2
import lzma
import zlib
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import BufferedReader
    from pathlib import Path

# What is read from the file at once, and the most that one step of expanding it may give: a few kilobytes
# of a compressed file may stand for gigabytes.
READ_BYTES = 1 << 18
MOST_AT_ONCE = 1 << 22

GZIP, BZIP2, XZ, ZSTANDARD = b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"


class CutShortError(Exception):
    """A file that is damaged, ends or cannot be read on before its end; what came before it stands."""


class _Machine(Protocol):
    """What the standard library's decompressors have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    @property
    def needs_input(self) -> bool: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Gunzip:
    """zlib's decompressor of one gzip member, in the words of the others."""

    def __init__(self) -> None:
        self._machine = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._machine.eof

    @property
    def unused_data(self) -> bytes:
        return self._machine.unused_data

    @property
    def needs_input(self) -> bool:
        return not self._machine.unconsumed_tail

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        return self._machine.decompress(self._machine.unconsumed_tail + data, max(max_length, 0))


_MACHINES: dict[bytes, Callable[[], _Machine]] = {
    GZIP: _Gunzip,
    BZIP2: bz2.BZ2Decompressor,
    XZ: lzma.LZMADecompressor,
}


def is_compressed(path: Path) -> bool:
    """Whether the file begins as one of the compressed formats that are read here.

    Raises:
        OSError: where it cannot be read.
    """
    with path.open("rb") as file:
        head = file.read(6)
    return head.startswith((*_MACHINES, ZSTANDARD))


def pieces(path: Path) -> Iterator[bytes]:
    """The content of the file, in pieces of at most `MOST_AT_ONCE` bytes; which format it has, its head says.

    Raises:
        OSError: where it cannot be read at all.
        CutShortError: after the last piece that could be had of a damaged file, or from a damaged disk.
    """
    with path.open("rb") as file:
        head = file.read(6)
        file.seek(0)
        if head.startswith(ZSTANDARD):
            yield from _zstandard(path)
            return
        for magic, machine in _MACHINES.items():
            if head.startswith(magic):
                yield from _expanded(file, machine)
                return
        while piece := _more(file, MOST_AT_ONCE):
            yield piece


def _more(file: BufferedReader, most: int) -> bytes:
    """The next bytes of a file whose head could be read."""
    try:
        # In one call of the system: of two, a failure of the second would lose what the first gave.
        return file.read1(most)
    except OSError as error:
        raise CutShortError(f"cannot be read on: {error.strerror or error}") from None


def _expanded(file: BufferedReader, new: Callable[[], _Machine]) -> Iterator[bytes]:
    machine, begun = new(), False
    raw = b""
    while raw or (raw := _more(file, READ_BYTES)):
        begun = True
        try:
            given = machine.decompress(raw, MOST_AT_ONCE)
        except (zlib.error, lzma.LZMAError, OSError, ValueError) as error:
            raise CutShortError(f"damaged: {error}") from None
        raw = b""
        if given:
            yield given
        while not machine.eof and not machine.needs_input:
            try:
                given = machine.decompress(b"", MOST_AT_ONCE)
            except (zlib.error, lzma.LZMAError, OSError, ValueError) as error:
                raise CutShortError(f"damaged: {error}") from None
            yield given
        if machine.eof:
            # Members follow one another where a rotated log was appended to; zeros pad what came from a tape.
            raw, machine, begun = machine.unused_data.lstrip(b"\0"), new(), False
    if begun:
        raise CutShortError("ends before its compressed content does")


def _zstandard(path: Path) -> Iterator[bytes]:
    # The standard library has none before Python 3.14; Arrow brings one.
    with pa.OSFile(str(path)) as file, pa.CompressedInputStream(file, "zstd") as stream:
        while True:
            try:
                piece = stream.read(READ_BYTES)
            except OSError as error:
                raise CutShortError(str(error)) from None
            if not piece:
                return
            yield piece
