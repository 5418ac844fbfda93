"""Lines of logs, for tests: the shape is that of a line which `globus-gridftp-server` 13.24 wrote."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from farlink_lab.logs.importing import Imported, import_logs
from farlink_lab.logs.store import part_paths

if TYPE_CHECKING:
    from pathlib import Path

BASE = datetime(2026, 11, 21, 3, 36, 8, 243_840, tzinfo=UTC)
BASE_US = round(BASE.timestamp() * 1e6)
SEEN = (
    "DATE=20261121033608.253248 HOST=vm PROG=globus-gridftp-server NL.EVNT=FTP_INFO "
    "START=20261121033608.243840 USER=anonymous FILE=/d/a.bin BUFFER=3939840 BLOCK=262144 NBYTES=20971520 "
    "VOLUME=/ STREAMS=4 STRIPES=1 DEST=[127.0.0.1] TYPE=STOR CODE=226 TASKID=none retrans=0,0,0,0"
)


def stamp(moment: datetime) -> str:
    """A time as GridFTP writes it."""
    return f"{moment:%Y%m%d%H%M%S}.{moment.microsecond:06}"


def line(start_s: float = 0.0, took_s: float = 1.0, **changes: Any) -> str:
    """A line of a transfer so long after `BASE`; `changes` replace words, `None` takes one out."""
    begun = BASE + timedelta(seconds=start_s)
    words: dict[str, Any] = dict(word.partition("=")[::2] for word in SEEN.split(" "))
    words |= {"START": stamp(begun), "DATE": stamp(begun + timedelta(seconds=took_s))}
    for name, value in changes.items():
        words[name] = value
    return " ".join(f"{name}={value}" for name, value in words.items() if value is not None)


def write(path: Path, lines: list[str]) -> Path:
    """A log of those lines."""
    path.write_text("".join(each + "\n" for each in lines))
    return path


def imported(tmp_path: Path, lines: list[str], **options: Any) -> Imported:
    """Imports those lines into `tmp_path / "out"`."""
    path = write(tmp_path / "transfers.log", lines)
    return import_logs(
        [path], out=tmp_path / "out", mapping=options.get("mapping"), zone=options.get("zone", "UTC")
    )


def rows(directory: Path) -> list[dict[str, Any]]:
    """The transfers of a directory, in the order of their starts."""
    found = [row for path in part_paths(directory) for row in pq.read_table(path).to_pylist()]
    return sorted(found, key=lambda row: (row["start_us"], row["end_us"], row["file"] or ""))
