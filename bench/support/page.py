"""The page of results that a bench writes beside its script."""

from __future__ import annotations

import functools
import os
import platform
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@functools.cache
def machine() -> str:
    """The processor, its cores, the memory and the kernel, and what load there was at first."""
    info = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.split(":", 1)[1].strip() for line in info if line.startswith("model name"))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    kernel, load = platform.release(), os.getloadavg()[0]
    size = f"{next(names, 'unknown processor')}, {cores} cores, {memory:.0f} GiB"
    return f"{size}, a shared virtual machine, Linux {kernel}, load {load:.1f} at the start"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A row of a page: its heading, what was measured, and when and where; without a body it was not."""

    title: str
    body: str
    made: str


def merged(path: Path, sections: Iterable[Section]) -> str:
    """The sections as Markdown; of what was not measured, what the page has of it as it stands there."""
    there = path.read_text() if path.exists() else ""
    kept = {
        part.partition("\n")[0]: f"## {part.strip()}" for part in re.split(r"^## ", there, flags=re.M)[1:]
    }
    parts = []
    for each in sections:
        if each.body:
            parts.append(f"## {each.title}\n\n*{each.made}*\n\n{each.body.strip()}")
        elif each.title in kept:
            parts.append(kept[each.title])
    return "\n\n".join(parts)


def write_rows(path: Path, *, title: str, question: str, command: str, sections: Iterable[Section]) -> None:
    """Writes a page whose rows are measured each by itself."""
    facts = f"- Command: `{command}`\n- Machine, date: of each table, beneath its heading"
    _write(path, f"# {title}\n\n{question}\n\n{facts}", merged(path, sections))


def write(path: Path, *, title: str, question: str, command: str, machine: str, body: str) -> None:
    """Writes a page that is measured as a whole."""
    facts = f"- Command: `{command}`\n- Machine: {machine}\n- Date: {today()}"
    _write(path, f"# {title}\n\n{question}\n\n{facts}", body)


def _write(path: Path, head: str, body: str) -> None:
    """Writes the page, with the notes on it that stand beside it (`NAME.notes.md`), and says where."""
    notes = path.with_suffix(".notes.md")
    if notes.exists():
        body = f"{body.strip()}\n\n{notes.read_text()}"
    path.write_text(f"{head}\n\n{body.strip()}\n")
    print(path)


def today() -> str:
    """The date, as a page has it."""
    return datetime.now(UTC).date().isoformat()
