"""Records of transfers that the lab did not make, added to a directory of records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from farlink_lab.error import LabError
from farlink_lab.iperf3_report import ReportError, Reports, identity, record_of, reports
from farlink_lab.places import RECORDS
from farlink_lab.run.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from farlink_lab.iperf3_report import KnownPath


class ImportFailedError(LabError):
    """A directory that no records can be added to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What came of the files.

    Attributes:
        added: Records that were added.
        failed: How many of them are of runs that failed.
        known: Reports whose records were there before.
        replaced: How many of those had other facts of the path, and have the new ones now.
        boundless: The reports of runs that went well, added, replaced or known, whose records have no
            capacity though the rate is known: the MTU is not.
        refused: A line for each file or report that no record can stand for.
    """

    added: int
    failed: int
    known: int
    replaced: int
    boundless: tuple[str, ...]
    refused: tuple[str, ...]


def import_iperf3(names: Sequence[Path], *, out: Path, path: KnownPath) -> Imported:
    """Adds a record to `out` for each iperf3 report in the files; the same report is never added twice.

    Where it is there, what is newly known of the path replaces what was known; the rest of that stands.

    Raises:
        LabError: where `out` cannot be written to.
    """
    read, refused = _read(names)
    if not read and not (out / RECORDS).exists():
        # Of what is refused nothing is left that looks like a campaign.
        return Imported(added=0, failed=0, known=0, replaced=0, boundless=(), refused=_in_order(refused))
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ImportFailedError(
            f"{out}: {error.strerror}: name a directory that can be written to"
        ) from error
    added = failed = known = 0
    replaced: dict[str, dict[str, Any]] = {}
    boundless: dict[str, str] = {}
    with Journal(out / RECORDS) as journal:
        there = {record.id: dict(record.fields) for record in journal.read().records}
        for place, name, found, written_s in read:
            for number, report in enumerate(found.found, start=1):
                where = f"{name}: report {number}" if len(found.found) > 1 else str(name)
                before = there.get(identity(report), {})
                try:
                    record = record_of(report, path=path.with_known(before), written_s=written_s)
                except ReportError as error:
                    refused.append((place, f"{where}: {error}"))
                    continue
                if record["outcome"] == "ok" and "rate_bps" in record and "goodput_bps" not in record:
                    boundless.setdefault(record["id"], where)
                there[record["id"]] = record
                if before:
                    known += 1
                    # One that failed before it noted its start has the time of the file, which may be a copy.
                    record["started"] = before["started"]
                    if record != before:
                        replaced[record["id"]] = record
                    continue
                journal.append(record)
                added += 1
                failed += record["outcome"] != "ok"
        if replaced:
            journal.replace(replaced)
    return Imported(
        added=added,
        failed=failed,
        known=known,
        replaced=len(replaced),
        boundless=tuple(boundless.values()),
        refused=_in_order(refused),
    )


def _read(names: Sequence[Path]) -> tuple[list[tuple[int, Path, Reports, float]], list[tuple[int, str]]]:
    """The reports of each file that has any, and when it was written; and why others are none: by place."""
    read: list[tuple[int, Path, Reports, float]] = []
    refused: list[tuple[int, str]] = []
    for place, name in enumerate(names):
        try:
            found, written_s = reports(name.read_text(encoding="utf-8")), name.stat().st_mtime
        except (OSError, UnicodeDecodeError, ReportError) as error:
            refused.append((place, f"{name}: {_reason(error)}"))
            continue
        refused += [(place, f"{name}: {reason}") for reason in found.refused]
        if found.found:
            read.append((place, name, found, written_s))
    return read, refused


def _in_order(refused: list[tuple[int, str]]) -> tuple[str, ...]:
    return tuple(line for _, line in sorted(refused, key=lambda each: each[0]))


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.strerror}: name a file that 'iperf3 --json' wrote"
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 at byte {error.start + 1}: give what 'iperf3 --json' printed"
    return str(error)
