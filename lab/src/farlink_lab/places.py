"""What stands where a directory was named: records, imported logs, or a file; and what reads it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# Of a campaign, and of imported logs.
RECORDS, LEDGER = "records.jsonl", "transfers.json"
# The plan by which a campaign was measured, beside its records.
PLAN_COPY = "plan.toml"


def records_of(place: Path) -> Path:
    """The file of records that is named so: itself, or that of a directory."""
    return place if _is_file(place) and place.name != LEDGER else place / RECORDS


def mend_for_records(directory: Path) -> str:
    """What to name where `directory` has no records to read."""
    if _is_file(directory):
        return f"it is of imported logs: 'farlink lab logs report {_word(directory.parent)}' reports of them"
    if _is_file(directory / LEDGER):
        return f"it has imported logs: 'farlink lab logs report {_word(directory)}' reports of them"
    return "name the directory that 'farlink lab profile --out DIR' wrote, or a file of --record"


def mend_for_logs(directory: Path) -> str:
    """What to name where `directory` has no imported logs to ask."""
    if _is_file(directory):
        if directory.name == LEDGER:
            return f"name the directory that the file is in: {directory.parent}"
        return f"import it first: 'farlink lab logs import {_word(directory)} --out DIR'"
    if _is_file(directory / RECORDS):
        return f"it has records: 'farlink lab report {_word(directory)}' reports of them"
    return "name the directory that 'farlink lab logs import --out DIR' wrote"


def mend_for_import(path: Path) -> str:
    """What to name where `path` is no log that could be imported."""
    if _is_file(path / RECORDS):
        return (
            f"it has records: 'farlink lab report {_word(path)}' reports of them; as a log name "
            f"{path / RECORDS}"
        )
    if _is_file(path / LEDGER):
        return f"it has imported logs: 'farlink lab logs report {_word(path)}' reports of them"
    return "name a log, or several"


def _word(path: Path) -> str:
    return shlex.quote(str(path))


def _is_file(path: Path) -> bool:
    """Whether `path` is a file: none is that cannot be looked at."""
    try:
        return path.is_file()
    except OSError:
        return False
