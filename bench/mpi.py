"""Do MPI programs run over long connections as fast as those allow? Writes bench/mpi.md.

Every row of the page is measured by itself, ours and the peers' transports in turn over the same emulated
hosts; what was measured stays under target/bench-mpi, and an interrupted bench goes on where it was.

usage: mpi.py [--row NAME]... [--repetitions N] [--again] [--page]
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from support import page
from support.mpi_job import WORK
from support.mpi_rows import Exchange, Lammps, PingPong, Stencil
from support.mpi_scale import Scale
from support.mpi_suite import Suite
from support.results import Results, asked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from support.cast.casting import Row

REPETITIONS = 1
ROWS: Sequence[Row] = (
    Exchange(name="loss", title="MPI_Sendrecv at 91.6 ms, by loss", rtts_ms=(91.6,), losses=(0, 1, 5, 10)),
    Exchange(
        name="rtt",
        title="MPI_Sendrecv by RTT",
        rtts_ms=(0.4, 11.8, 45.6, 183, 366),
        losses=(0, 1, 5, 10),
    ),
    # Where an exchange takes a fraction of a millisecond, twenty of them say nothing of a few microseconds.
    Exchange(
        name="short",
        title="MPI_Sendrecv at 0.4 ms without loss, a thousand times",
        rtts_ms=(0.4,),
        losses=(0,),
        exchanges=1000,
        turns=9,
        digits=3,
        bound=True,
    ),
    Exchange(
        name="short-lossy",
        title="Short messages at 0.4 ms with loss, a thousand times",
        rtts_ms=(0.4,),
        losses=(1, 5, 10),
        sizes=(8, 256, 8192),
        exchanges=1000,
        turns=3,
        digits=3,
        bound=True,
    ),
    Stencil(),
    PingPong(),
    Lammps(),
    Suite(),
    Scale(),
)


def write(results: Results) -> None:
    """The page, of all that was measured."""

    def section(row: Row) -> page.Section:
        return results.section(row.name, row.title, lambda: row.body(results))

    page.write_rows(
        Path(__file__).with_suffix(".md"),
        title="Do MPI programs run over long connections as fast as those allow?",
        question="Open MPI over libfarlink-fi, by each of its transports, and over its own TCP: in "
        "turn, on the same emulated hosts of 10 Gb/s with an MTU of 9000, all on the same cores as the "
        "emulator. Ours is encrypted (AES-256-GCM) and is told the link's rate, but where *rate "
        "sought* is said; TCP is in clear and uses the kernel's default control, BBR.",
        command="make bench-mpi",
        sections=map(section, ROWS),
    )


def main() -> None:
    """Measures what is not measured yet, and writes the page."""
    wanted = asked(
        "Measure MPI over farlink beside its peers; write bench/mpi.md.",
        [row.name for row in ROWS],
        REPETITIONS,
    )
    results = Results(path=WORK / "results.jsonl")
    if wanted.again:
        results.forget(wanted.rows)
    if not wanted.page:
        for row in ROWS:
            if row.name in wanted.rows:
                row.run(results, wanted.repetitions)
    write(results)


if __name__ == "__main__":
    main()
