"""The page of results that a bench writes beside its script."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def machine() -> str:
    """The processor, its cores, the memory and the kernel, and what load there was."""
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


def write(path: Path, *, title: str, question: str, command: str, machine: str, body: str) -> None:
    """Writes the page, with the notes on it that stand beside it (`NAME.notes.md`), and says where."""
    notes = path.with_suffix(".notes.md")
    if notes.exists():
        body = f"{body.strip()}\n\n{notes.read_text()}"
    when = datetime.now(UTC).date().isoformat()
    facts = f"- Command: `{command}`\n- Machine: {machine}\n- Date: {when}"
    path.write_text(f"# {title}\n\n{question}\n\n{facts}\n\n{body.strip()}\n")
    print(path)
