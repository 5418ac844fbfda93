"""The records file of a campaign: one writer, one write a line, nothing half written."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from typing import TYPE_CHECKING, Any, Self

from farlink_lab.error import LabError
from farlink_lab.records import Reading, read_records

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class JournalError(LabError):
    """A record that could not be kept; it is in the message, so that nothing is lost."""


class Journal:
    """`records.jsonl`, open for appending by this campaign alone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = -1

    def __enter__(self) -> Self:
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise JournalError(
                f"{self.path}: {error.strerror}: name a directory that can be written to"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            raise JournalError(
                f"{self.path}: another campaign is writing there: wait for its end, or name another --out"
            ) from None
        if os.fstat(self._file).st_ino != self.path.stat().st_ino:
            os.close(self._file)
            raise JournalError(f"{self.path}: another command has just replaced it: start again")
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def read(self) -> Reading:
        """What it holds."""
        return read_records(self.path)

    def replace(self, records: Mapping[str, dict[str, Any]]) -> None:
        """Puts each record where the one of its id stands; the file is replaced whole or not at all.

        Raises:
            JournalError: where it could not be written; then everything is as it was.
        """
        path = self.path.resolve()
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        lines = self.path.read_bytes().split(b"\n")
        for index, line in enumerate(lines):
            with contextlib.suppress(ValueError):
                known = json.loads(line)
                if isinstance(known, dict) and known.get("id") in records:
                    lines[index] = _line(records[known["id"]]).encode()
        try:
            new = os.open(beside, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            try:
                with os.fdopen(os.dup(new), "wb") as file:
                    file.write(b"\n".join(lines))
                os.fsync(new)
                fcntl.flock(new, fcntl.LOCK_EX | fcntl.LOCK_NB)
                beside.replace(path)
            except OSError:
                os.close(new)
                raise
        except OSError as error:
            beside.unlink(missing_ok=True)
            raise JournalError(f"{self.path}: {error.strerror}: make room and start again") from error
        os.close(self._file)
        self._file = new

    def append(self, record: dict[str, Any]) -> None:
        """Adds one line.

        Raises:
            JournalError: where it could not be written whole, as on a full disk; what stood before still
                stands.
        """
        text = _line(record)
        before = os.fstat(self._file).st_size
        # A line cut short by a crash must not swallow this one.
        broken = before > 0 and os.pread(self._file, 1, before - 1) != b"\n"
        line = (b"\n" if broken else b"") + text.encode() + b"\n"
        try:
            written = os.write(self._file, line)
            reason = "it could not be written whole" if written < len(line) else None
        except OSError as error:
            reason = error.strerror
        if reason:
            os.ftruncate(self._file, before)
            raise JournalError(f"{self.path}: {reason}: make room and start again; the record was {text}")


def _line(record: Mapping[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
