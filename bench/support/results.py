"""What a bench measured, which stays, and which of its rows it is asked for."""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support import page
from support.connection import FARLINK

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Run = dict[str, Any]


@functools.cache
def build() -> str:
    """A short digest of the program and of the provider that are measured."""
    found = hashlib.blake2b(digest_size=8)
    program = Path(FARLINK)
    for file in (program, program.with_name("libfarlink_fi.so")):
        if file.exists():
            found.update(file.read_bytes())
    return found.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Every run so far, kept in a file: what was interrupted goes on."""

    path: Path

    def __post_init__(self) -> None:
        """Looks at the machine before anything is measured: what load there is."""
        page.machine()

    def read(self) -> list[Run]:
        """All of them."""
        if not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    def of(self, row: str, name: str | None = None) -> list[Run]:
        """Those of a row, and of one contender of it."""
        return [run for run in self.read() if run["row"] == row and name in (None, run["contender"])]

    def has(self, row: str, name: str, repetition: int) -> bool:
        """Whether it was measured."""
        return any(run["repetition"] == repetition for run in self.of(row, name))

    def add(self, run: Run) -> None:
        """Keeps one more, and of which build it is, when and where."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        facts = {"build": build(), "date": page.today(), "machine": page.machine()}
        with self.path.open("a") as file:
            file.write(json.dumps(run | facts) + "\n")

    def made(self, row: str) -> str:
        """When and where a row was measured, and whether of several builds."""
        runs = self.of(row)
        dates = sorted({run["date"] for run in runs if "date" in run})
        machines = sorted({run["machine"] for run in runs if "machine" in run})
        # What is of no machine, or was kept before that was noted, is not given today's.
        said = [" to ".join(dict.fromkeys((dates[0], dates[-1])))] if dates else ["when was not noted"]
        said += machines
        if len({run.get("build") for run in runs}) > 1:
            said.append("several builds of Farlink")
        return "; ".join(said)

    def section(
        self, row: str, title: str, body: Callable[[], str], *, is_there: bool = False
    ) -> page.Section:
        """A row of the page; without a body where nothing of it was measured, nor `is_there` otherwise."""
        is_there = is_there or bool(self.of(row))
        return page.Section(title=title, body=body() if is_there else "", made=self.made(row))

    def forget(self, rows: Sequence[str]) -> None:
        """Drops what was measured of these rows."""
        if self.path.exists():
            kept = [run for run in self.read() if run["row"] not in rows]
            self.path.write_text("".join(f"{json.dumps(run)}\n" for run in kept))

    @property
    def machine(self) -> str:
        """Where all of them were measured, or would be, and which rows are of several builds."""
        runs = self.read()
        machines = sorted({run["machine"] for run in runs if "machine" in run}) or [page.machine()]
        builds: dict[str, set[str]] = {}
        for run in runs:
            builds.setdefault(run["row"], set()).add(run.get("build", ""))
        mixed = [row for row, found in builds.items() if len(found) > 1]
        return "; ".join(machines) + (
            f"\n- Rows with runs of several builds of Farlink: {', '.join(mixed)}" if mixed else ""
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command line asks for."""

    rows: Sequence[str]
    repetitions: int
    again: bool
    page: bool


def asked(description: str, rows: Sequence[str], repetitions: int) -> Asked:
    """The command line of a bench with rows of these names."""
    parser = argparse.ArgumentParser(description=description)
    names = ", ".join(rows).replace("%", "%%")
    parser.add_argument("--row", action="append", choices=rows, metavar="NAME", help=f"one of {names}")
    parser.add_argument("--repetitions", type=int, default=repetitions)
    parser.add_argument("--again", action="store_true", help="measure again what is there of these rows")
    parser.add_argument(
        "--page", action="store_true", help="write the page of what is there, and measure nothing"
    )
    found = parser.parse_args()
    return Asked(rows=found.row or rows, repetitions=found.repetitions, again=found.again, page=found.page)
