"""A log that a server still writes, imported as it grows, and taken up again where it was left."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from farlink_lab.logs import gridftp
from farlink_lab.logs.block import Block, Cutter
from farlink_lab.logs.expansion import READ_BYTES, is_compressed
from farlink_lab.logs.importing import UnknownLogError, identity_of, is_blank, reader_of, take
from farlink_lab.logs.store import Source, Store
from farlink_lab.logs.transfer import LogError
from farlink_lab.logs.zone import Zone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import BufferedReader
    from pathlib import Path
    from types import FrameType

    from farlink_lab.logs.mapping import Mapping
    from farlink_lab.logs.transfer import Parsed

# How often a log is looked at, seconds: a person who watches waits no longer than that.
LOOK_S = 1.0
# Of the beginning of a log, that are remembered: some lines.
_HEAD_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one look at the log added.

    Attributes:
        added: Transfers.
        refused: Lines.
        offset: Bytes that were read of the file that now has the log's name.
        warnings: What may not have been read, and how to mend that.
    """

    added: int
    refused: int
    offset: int
    warnings: tuple[str, ...] = ()

    @property
    def is_news(self) -> bool:
        """Whether there is anything to tell."""
        return bool(self.added or self.refused or self.warnings)


@dataclass(slots=True, kw_only=True)
class Follower:
    """Follows one log into a store.

    Call `step` again and again: each imports the lines that are complete and makes them count together with
    how far the log was read, so that whatever ends the process between two steps neither loses nor doubles
    a line. A log that is another file under its name (rotated) is first read to its end, wherever beside the
    new one it is, then the new one from its beginning; one that was cut to nothing (copied and truncated) is
    read from its beginning.
    """

    path: Path
    store: Store
    mapping: Mapping | None
    zone: str
    _file: BufferedReader | None = None
    _source: Source = field(init=False)
    _cutter: Cutter = field(init=False)
    _zone: Zone = field(init=False)
    _read: Callable[[Block], Parsed] | None = None
    _warnings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Takes up what an earlier follower left."""
        self._open()

    def close(self) -> None:
        """Leaves the log alone."""
        if self._file is not None:
            self._file.close()

    def step(self) -> Step:
        """Imports what is new and complete.

        Raises:
            LogError: where the log cannot be read or the store cannot be written.
        """
        before = (self._source.kept, sum(self._source.refused.values()))
        self._take_new()
        replaced = self._was_replaced()
        if replaced:
            self._reopen()
            self._take_new()
        source = self._source
        step = Step(
            added=source.kept - before[0],
            refused=sum(source.refused.values()) - before[1],
            offset=source.offset,
            warnings=tuple(self._warnings),
        )
        self._warnings.clear()
        if step.added or step.refused or replaced:
            self.store.commit(tidy=False)
        return step

    def _take_new(self) -> None:
        while piece := self._piece():
            for block in self._cutter.give(piece):
                self._take(block)
        self._take_complete()

    def _take_complete(self) -> None:
        for block in self._cutter.complete_lines():
            self._take(block)

    def _piece(self) -> bytes:
        assert self._file is not None
        try:
            return self._file.read1(READ_BYTES)
        except OSError as error:
            self._take_complete()
            raise LogError(
                f"{self.path}: {error.strerror}: what was read before counts: follow it again when it can "
                "be read"
            ) from error

    def _take(self, block: Block) -> None:
        if self._read is None and not is_blank(block):
            self._read, _ = reader_of(block, mapping=self.mapping, where=self._source.name)
        parsed = gridftp.parse(block) if self._read is None else self._read(block)
        take(self.store, self._source, block, parsed, self._zone)
        assert self._file is not None
        self._source.head = _head_of(self._file, self._source.offset)

    def _was_replaced(self) -> bool:
        """Whether the server writes another file now, or this one from its beginning."""
        assert self._file is not None
        try:
            identity, size = identity_of(self.path), self.path.stat().st_size
        except (OSError, UnknownLogError):
            # Between the rename and the new file of a rotation.
            return False
        if identity == self._source.identity:
            return size < self._file.tell()
        # Until the server is told of a new file, it goes on in the old one.
        return size > 0

    def _reopen(self) -> None:
        """Ends with the old file, its unfinished last line too, and begins with the new one."""
        assert self._file is not None
        if os.fstat(self._file.fileno()).st_size >= self._file.tell():
            # What was written to it since the last look.
            self._take_new()
            for block in self._cutter.finish():
                self._take(block)
        self._open(afresh=True)

    def _open(self, *, afresh: bool = False) -> None:
        """Opens the file that is to be read: from its beginning, or where an earlier follower ended."""
        self.close()
        known = next((each for each in self.store.ledger.sources if each.name == str(self.path)), None)
        going_on = None if known is None or afresh else self._place_of(known)
        path = going_on or self.path
        try:
            if is_compressed(path):
                raise LogError(f"{path}: compressed: what a server still writes is not; import it instead")
            identity_of(path)
            self._file = path.open("rb")
            found = os.fstat(self._file.fileno())
        except OSError as error:
            raise LogError(f"{path}: {error.strerror}: name a log that can be read") from error
        if known is not None and going_on is not None:
            self._source = known
        else:
            self._source = Source(name=str(self.path), identity=(found.st_dev, found.st_ino))
            if known is not None:
                # What came of the files before it under this name stays counted.
                self._source.kept, self._source.lines = known.kept, known.lines
                self._source.earlier = known.lines
                self._source.refused, self._source.notes = dict(known.refused), dict(known.notes)
                self.store.ledger.sources.remove(known)
            self.store.ledger.sources.append(self._source)
        self._zone = Zone(name=self.zone)
        begun = self._source.offset
        self._read = None
        if begun:
            # A table's heading, and what kind of log it is, stand at its beginning.
            head = self._file.read(min(begun, READ_BYTES))
            cutter = Cutter()
            for block in (*cutter.give(head[: head.rfind(b"\n") + 1]), *cutter.complete_lines()):
                if not is_blank(block):
                    self._read, _ = reader_of(block, mapping=self.mapping, where=self._source.name)
                    self._read(block)
        self._file.seek(begun)
        self._cutter = Cutter(first_line=self._source.lines - self._source.earlier + 1, end=begun)

    def _place_of(self, known: Source) -> Path | None:
        """Where the file is that an earlier follower read; nothing where it is gone, which is warned of."""
        if _is_rest_of(self.path, known):
            return self.path
        try:
            beside = sorted(self.path.parent.iterdir())
        except OSError:
            beside = []
        found = next((path for path in beside if _is_rest_of(path, known)), None)
        if found is None:
            self._warnings.append(
                f"{self.path}: was rotated after {known.offset:,} bytes of it were read, and which file "
                f"beside it has the rest cannot be told: import that one, as {self.path}.1.gz, once nothing "
                "follows: a line never counts twice"
            )
            return None
        later = [path for path in beside if path != self.path and _is_later(path, found, self.path.name)]
        if later:
            self._warnings.append(
                f"{self.path}: rotated more than once since it was read: import "
                f"{', '.join(map(str, later))} too, once nothing follows: a line never counts twice"
            )
        return found


def _is_rest_of(path: Path, known: Source) -> bool:
    """Whether it is the file that was read, and not cut since."""
    try:
        if identity_of(path) != known.identity or path.stat().st_size < known.offset or is_compressed(path):
            return False
        # The inode of a file that was removed is soon given to another.
        with path.open("rb") as file:
            return known.head in ("", _head_of(file, known.offset))
    except (OSError, UnknownLogError):
        return False


def _head_of(file: BufferedReader, offset: int) -> str:
    """What tells a log from another: its first lines have times."""
    return hashlib.blake2b(os.pread(file.fileno(), min(offset, _HEAD_BYTES), 0), digest_size=16).hexdigest()


def _is_later(path: Path, found: Path, name: str) -> bool:
    """Whether it is a log of that name that was written after another."""
    try:
        return path.name.startswith(name) and path.stat().st_mtime_ns > found.stat().st_mtime_ns
    except OSError:
        return False


def follow(path: Path, *, out: Path, mapping: Mapping | None, zone: str, once: bool) -> Iterator[Step]:
    """Imports the log as it grows, until the process is asked to end; yields each step that has news.

    Args:
        path: The log.
        out: Where transfers go.
        mapping: As for an import.
        zone: Of local times in it.
        once: End when all that is there was read.

    Raises:
        LogError: as `Follower.step`.
    """
    ending = threading.Event()
    with Store(out) as store, _until(ending):
        follower = Follower(path=path, store=store, mapping=mapping, zone=zone)
        try:
            while True:
                step = follower.step()
                if step.is_news:
                    yield step
                elif once or ending.is_set():
                    break
                if ending.is_set():
                    break
                if not step.is_news:
                    ending.wait(LOOK_S)
        finally:
            follower.close()
            store.commit(tidy=True)


class _until:  # noqa: N801
    """While it lasts, Ctrl-C and SIGTERM set an event in place of ending the process."""

    def __init__(self, ending: threading.Event) -> None:
        self._ending = ending
        self._before: dict[int, signal.Handlers | Callable[[int, FrameType | None], object] | int | None] = {}

    def __enter__(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, lambda *_: self._ending.set())

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
