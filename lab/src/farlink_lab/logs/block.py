"""A log as blocks of whole lines: the unit in which lines are read, judged and counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from farlink_lab.logs.expansion import CutShortError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from farlink_lab.logs.transfer import Whole

# Of a block: enough that what is done once a block costs nothing, little enough that several fit into memory.
BLOCK_BYTES = 16 << 20
# No line of any known log comes near it: a longer one is a broken file, and is never held as a whole.
MOST_LINE_BYTES = 1 << 20
_NEWLINE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Some whole lines of a log.

    Attributes:
        data: The lines, each with its newline, but the last of a file perhaps.
        first_line: Number of the first, from 1.
        end: Bytes of the (expanded) log up to the end of this block.
        newlines: Shape (lines,): where each line ends within `data`, its newline excluded.
        too_long: Indices of lines that were longer than `MOST_LINE_BYTES`, with how they began; they are
            empty in `data`.
    """

    data: bytes
    first_line: int
    end: int
    newlines: Whole
    too_long: tuple[tuple[int, bytes], ...] = ()

    @property
    def lines(self) -> int:
        """How many lines it has."""
        return len(self.newlines)

    def line(self, index: int) -> bytes:
        """The line of that index, without its newline and carriage return."""
        start = int(self.newlines[index - 1]) + 1 if index else 0
        return self.data[start : int(self.newlines[index])].rstrip(b"\r")


@dataclass(slots=True, kw_only=True)
class Cutter:
    """Cuts a stream of bytes into blocks of whole lines, whose memory is bounded whatever comes.

    `give` each piece, and `finish` at the end of the log: both yield the blocks that are then complete.
    """

    first_line: int = 1
    end: int = 0
    block_bytes: int = BLOCK_BYTES
    _held: list[bytes] = field(default_factory=list)
    _held_bytes: int = 0
    # Set within a line that is too long: how it began.
    _skipping: bytes | None = None

    def give(self, piece: bytes) -> Iterator[Block]:
        """Takes the next bytes of the log."""
        if self._skipping is not None:
            cut = piece.find(b"\n")
            if cut < 0:
                self.end += len(piece)
                return
            # The line that was skipped stays as an empty one: numbers of lines hold.
            self.end += cut
            piece = piece[cut:]
            yield self._block(b"\n", head=self._skipping)
            self._skipping = None
            piece = piece[1:]
        self._held.append(piece)
        self._held_bytes += len(piece)
        if self._held_bytes >= self.block_bytes:
            yield from self._cut()

    def finish(self) -> Iterator[Block]:
        """The end of the log: what is left, a last line without a newline too."""
        if self._skipping is not None:
            yield self._block(b"", head=self._skipping)
            self._skipping = None
            return
        rest = b"".join(self._held)
        self._held, self._held_bytes = [], 0
        if rest:
            yield self._block(rest)

    def complete_lines(self) -> Iterator[Block]:
        """The whole lines that are there; an unfinished last one is given back when it is complete."""
        if self._held_bytes:
            yield from self._cut()

    @property
    def held_bytes(self) -> int:
        """How much is held of a line that has no end yet."""
        return self._held_bytes

    def _cut(self) -> Iterator[Block]:
        data = b"".join(self._held)
        cut = data.rfind(b"\n") + 1
        rest = data[cut:]
        if cut:
            yield self._block(data[:cut])
        if len(rest) > MOST_LINE_BYTES:
            self._skipping = rest[:_HEAD_BYTES]
            self.end += len(rest)
            rest = b""
        self._held, self._held_bytes = [rest] if rest else [], len(rest)

    def _block(self, data: bytes, *, head: bytes | None = None) -> Block:
        if head is not None:
            made = Block(
                data=data or b"\n",
                first_line=self.first_line,
                end=self.end + len(data),
                newlines=np.zeros(1, dtype=np.int64),
                too_long=((0, head),),
            )
        else:
            made = self._measured(data)
        self.first_line += made.lines
        self.end += len(data)
        return made

    def _measured(self, data: bytes) -> Block:
        newlines = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == _NEWLINE)
        if not data.endswith(b"\n"):
            newlines = np.append(newlines, len(data))
        lengths = np.diff(newlines, prepend=-1)
        long = np.flatnonzero(lengths > MOST_LINE_BYTES)
        end, too_long = self.end + len(data), []
        if len(long):
            starts = newlines - lengths + 1
            too_long = [(int(i), data[starts[i] : starts[i] + _HEAD_BYTES]) for i in long]
            gone = set(map(int, long))
            kept = [b"" if i in gone else data[starts[i] : newlines[i]] for i in range(len(newlines))]
            data = b"\n".join(kept) + b"\n"
            newlines = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == _NEWLINE)
        return Block(
            data=data, first_line=self.first_line, end=end, newlines=newlines, too_long=tuple(too_long)
        )


def blocks(stream: Iterable[bytes], *, block_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
    """The blocks of a log.

    Raises:
        CutShortError: after the last whole line of a stream that was cut short; the unfinished line is left
            out.
    """
    cutter = Cutter(block_bytes=block_bytes)
    try:
        for piece in stream:
            yield from cutter.give(piece)
    except CutShortError:
        yield from cutter.complete_lines()
        raise
    yield from cutter.finish()


# How much of a line that is too long is kept to name it.
_HEAD_BYTES = 200
