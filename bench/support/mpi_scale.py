"""The row that asks what a process keeps for its peers, by transport and number of peers."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from support import page
from support.mpi_job import PROGRAMS, TRANSPORTS, WORK, compiled, ours
from support.mpi_rows import emulated, measured, shown

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from support.mpi_job import Way
    from support.mpi_rows import Run
    from support.results import Results

HOSTS = "abcd"
ROUNDS, BYTES = 10, 1024
# Of a rank's line of figures.
FIGURES = (
    "contexts_most",
    "responders_most",
    "connects",
    "waits",
    "bytes_of_contexts",
    "bytes_of_responders",
    "bytes_of_peers",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Everybody to everybody over four hosts, with more and more ranks on each."""

    name: str = "scale"
    title: str = "What a rank keeps for its peers: four hosts at 11.8 ms, all to all, 1 KiB each"
    ranks_a_host: Sequence[int] = (1, 2, 4, 8)
    initiators: Sequence[int] = (4, 8, 16)

    def run(self, results: Results, repetitions: int) -> None:
        """Measures what is not measured yet of it."""
        program = compiled(PROGRAMS / "mpi_alltoall.c")
        figures = WORK / "figures.jsonl"
        said = {"FARLINK_STATS": str(figures)}
        ways = [ours(each, rate="10gbit", **said) for each in TRANSPORTS if each != "dc"]
        ways += [
            ours("dc", label=f", {number} DCIs", rate="10gbit", FARLINK_DCIS=str(number), **said)
            for number in self.initiators
        ]
        for repetition in range(1, repetitions + 1):
            with emulated(11.8, 0, len(HOSTS), seed=repetition) as place:
                for each in self.ranks_a_host:
                    for way in ways:

                        def take(each: int = each, way: Way = way) -> Run:
                            figures.unlink(missing_ok=True)
                            words = (program, str(ROUNDS), str(BYTES))
                            took = place.run(way, HOSTS, *words, ranks_a_host=each).split()
                            return {"seconds": statistics.mean(map(float, took)), **kept(figures)}

                        case = f"{each * len(HOSTS)} ranks, {way.name}"
                        measured(results, self.name, case, repetition, take)

    def body(self, results: Results) -> str:
        """What was measured, in Markdown."""
        runs: dict[str, list[Run]] = defaultdict(list)
        for run in results.of(self.name):
            runs[run["contender"]].append(run)
        lines = []
        for case, found in runs.items():
            ranks, name = case.split(", ", 1)
            far = int(ranks.split()[0]) * (len(HOSTS) - 1) // len(HOSTS)
            good = [run for run in found if "seconds" in run]
            times = shown(sorted(run["seconds"] for run in good), 1e3, 1, runs=len(found))
            cells = [
                f"{statistics.median(run[figure] for run in good):,.0f}" if good else "" for figure in FIGURES
            ]
            lines.append([far, name, times, *cells])
        head = ["peers on other hosts", "over", "all to all, ms", "contexts", "responders", "connects"]
        head += ["waits", "bytes of contexts", "of responders", "of peers"]
        words = (
            f"Mean of {ROUNDS} rounds after one to warm up; of each rank's figures (`--stats`) the median "
            "of all ranks: contexts and responders at the most at a time, bytes at the end."
        )
        return f"{words}\n\n{page.table(head, lines)}"


def kept(figures: Path) -> dict[str, float]:
    """The medians of what the ranks said of themselves."""
    ranks = [json.loads(line) for line in figures.read_text().splitlines()]
    return {figure: statistics.median(each[figure] for each in ranks) for figure in FIGURES}
