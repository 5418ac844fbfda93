"""What stands where a directory was named: records, imported logs, or a file; and what reads it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# Of a campaign, and of imported logs.
RECORDS, LEDGER = "records.jsonl", "transfers.json"


def mend_for_records(directory: Path) -> str:
    """What to name where `directory` has no records to read."""
    if directory.is_file():
        return f"name the directory that the file is in: {directory.parent}"
    if (directory / LEDGER).is_file():
        return f"it has imported logs: 'farlink lab logs report {_word(directory)}' reports of them"
    return "name the directory that 'farlink lab profile --out DIR' wrote"


def mend_for_logs(directory: Path) -> str:
    """What to name where `directory` has no imported logs to ask."""
    if directory.is_file():
        if directory.name == LEDGER:
            return f"name the directory that the file is in: {directory.parent}"
        return f"import it first: 'farlink lab logs import {_word(directory)} --out DIR'"
    if (directory / RECORDS).is_file():
        return f"it has records: 'farlink lab report {_word(directory)}' reports of them"
    return "name the directory that 'farlink lab logs import --out DIR' wrote"


def mend_for_import(path: Path) -> str:
    """What to name where `path` is no log that could be imported."""
    if (path / RECORDS).is_file():
        return (
            f"it has records: 'farlink lab report {_word(path)}' reports of them; as a log name "
            f"{path / RECORDS}"
        )
    if (path / LEDGER).is_file():
        return f"it has imported logs: 'farlink lab logs report {_word(path)}' reports of them"
    return "name a log, or several"


def _word(path: Path) -> str:
    return shlex.quote(str(path))
