"""A log that a server still writes, imported as it grows, and taken up again where it was left."""

from __future__ import annotations

import signal
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

from farlink_lab.logs import gridftp
from farlink_lab.logs.block import Block, Cutter
from farlink_lab.logs.expansion import READ_BYTES, is_compressed
from farlink_lab.logs.importing import identity_of, is_blank, reader_of, take
from farlink_lab.logs.store import Source, Store
from farlink_lab.logs.transfer import LogError
from farlink_lab.logs.zone import Zone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import FrameType

    from farlink_lab.logs.mapping import Mapping
    from farlink_lab.logs.transfer import Parsed

# How often a log is looked at, seconds: a person who watches waits no longer than that.
LOOK_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one look at the log added."""

    added: int
    refused: int
    offset: int


@dataclass(slots=True, kw_only=True)
class Follower:
    """Follows one log into a store.

    Call `step` again and again: each imports the lines that are complete and makes them count together with
    how far the log was read, so that whatever ends the process between two steps neither loses nor doubles
    a line. A log that is another file under its name (rotated) is first read to its end, then the new one
    from its beginning; one that was cut to nothing (copied and truncated) is read from its beginning.
    """

    path: Path
    store: Store
    mapping: Mapping | None
    zone: str
    _file: BinaryIO | None = None
    _source: Source = field(init=False)
    _cutter: Cutter = field(init=False)
    _zone: Zone = field(init=False)
    _read: Callable[[Block], Parsed] | None = None

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
        source = self._source
        self._take_new()
        step = Step(
            added=source.kept - before[0],
            refused=sum(source.refused.values()) - before[1],
            offset=source.offset,
        )
        if step.added or step.refused:
            self.store.commit(tidy=False)
        if self._was_replaced():
            self._reopen()
        return step

    def _take_new(self) -> None:
        assert self._file is not None
        while piece := self._file.read(READ_BYTES):
            for block in self._cutter.give(piece):
                self._take(block)
        for block in self._cutter.complete_lines():
            self._take(block)

    def _take(self, block: Block) -> None:
        if self._read is None and not is_blank(block):
            self._read, _ = reader_of(block, mapping=self.mapping, where=self._source.name)
        parsed = gridftp.parse(block) if self._read is None else self._read(block)
        take(self.store, self._source, block, parsed, self._zone)

    def _was_replaced(self) -> bool:
        assert self._file is not None
        try:
            identity = identity_of(self.path)
        except (OSError, LogError):
            # Between the rename and the new file of a rotation.
            return False
        if identity != self._source.identity:
            return True
        return self.path.stat().st_size < self._file.tell()

    def _reopen(self) -> None:
        """Ends with the old file, its unfinished last line too, and begins with the new one."""
        same = identity_of(self.path) == self._source.identity
        if not same:
            for block in self._cutter.finish():
                self._take(block)
        self.close()
        self._open(afresh=True)
        self.store.commit(tidy=False)

    def _open(self, *, afresh: bool = False) -> None:
        try:
            if is_compressed(self.path):
                raise LogError(
                    f"{self.path}: compressed: what a server still writes is not; import it instead"
                )
            self._file = self.path.open("rb")
            identity = identity_of(self.path)
            size = self.path.stat().st_size
        except OSError as error:
            raise LogError(f"{self.path}: {error.strerror}: name a log that can be read") from error
        known = next((each for each in self.store.ledger.sources if each.name == str(self.path)), None)
        go_on = known is not None and not afresh and known.identity == identity and known.offset <= size
        if known is not None and go_on:
            self._source = known
        else:
            self._source = Source(name=str(self.path), identity=identity)
            if known is not None:
                # What came of the files before it under this name stays counted.
                self._source.kept, self._source.lines = known.kept, known.lines
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
        self._cutter = Cutter(first_line=self._source.lines + 1 if go_on else 1, end=begun)


def follow(path: Path, *, out: Path, mapping: Mapping | None, zone: str, once: bool) -> Iterator[Step]:
    """Imports the log as it grows, until the process is asked to end; yields each step that added something.

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
                if step.added or step.refused:
                    yield step
                elif once or ending.is_set():
                    break
                if ending.is_set():
                    break
                if not (step.added or step.refused):
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
