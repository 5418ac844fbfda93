"""The rows of bench/mpi.md: what each measures, and how it is shown."""

from __future__ import annotations

import itertools
import os
import re
import statistics
import subprocess
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from support import page
from support.mpi_job import (
    EAGER_TCP,
    NET,
    PROGRAMS,
    SHARED_PROGRAMS,
    TCP,
    TRANSPORTS,
    UCX,
    WORK,
    FailedError,
    Site,
    Way,
    compiled,
    ours,
    run_here,
    site,
)

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Sequence

    from support.results import Results

Run = dict[str, Any]
RATE_BPS = 10e9
# What IP, UDP and our own headers leave of it, with an MTU of 9000.
GOODPUT = 0.99
SIZES = (8, 256, 8192, 262_144, 1_048_576)


def measured(results: Results, row: str, case: str, repetition: int, take: Callable[[], Run]) -> None:
    """Has a case measured that was not, and keeps what came of it; what failed is kept as that."""
    if results.has(row, case, repetition):
        return
    try:
        found = take()
    except (FailedError, subprocess.TimeoutExpired) as error:
        found = {"failed": str(error)[-300:]}
    print(row, repetition, case, str(found)[:150], flush=True)
    results.add({"row": row, "contender": case, "repetition": repetition, **found})


def medians(runs: Sequence[Run], key: str) -> list[float]:
    """The values of the runs that went well, in order."""
    return sorted(float(run[key]) for run in runs if key in run)


def shown(values: Sequence[float], scale: float = 1.0, digits: int = 1, runs: int | None = None) -> str:
    """A median, the range where there are several, and how many of the runs have no value."""
    runs = len(values) if runs is None else runs
    failed = f"{runs - len(values)} of {runs} failed"
    if not values:
        return failed if runs > 1 else "failed"
    said = f"{statistics.median(values) * scale:.{digits}f}"
    if len(values) > 1:
        said += f" ({values[0] * scale:.{digits}f}-{values[-1] * scale:.{digits}f})"
    return said if len(values) == runs else f"{said}, {failed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """MPI_Sendrecv over a grid of RTT and loss, all sizes in one job."""

    name: str
    title: str
    rtts_ms: Sequence[float]
    losses: Sequence[int]
    sizes: Sequence[int] = SIZES
    exchanges: int = 20
    # Times that it is measured, at least.
    turns: int = 1
    digits: int = 2
    # Whether each rank has a processor of its own, where what it sends is emulated, too: an exchange has two
    # states by that otherwise.
    bound: bool = False

    def ways(self) -> list[Way]:
        """Who takes part."""
        known = [ours(each, rate="10gbit") for each in TRANSPORTS]
        return [TCP, EAGER_TCP, *known, ours("rc"), ours("dc")]

    def run(self, results: Results, repetitions: int) -> None:
        """Measures what is not measured yet of it."""
        program = compiled(PROGRAMS / "mpi_exchange.c")
        command = [*((str(PROGRAMS / "own_processor.sh"),) if self.bound else ()), program]
        sizes = [str(size) for size in self.sizes]
        for repetition in range(1, max(repetitions, self.turns) + 1):
            for rtt in self.rtts_ms:
                for loss in self.losses:
                    with emulated(rtt, loss, 2, seed=repetition) as place:
                        if self.bound:
                            place.connection.bind_links(sorted(os.sched_getaffinity(0)))
                        for way in self.ways():

                            def take(place: Site = place, way: Way = way) -> Run:
                                said = place.run(way, "ab", *command, str(self.exchanges), *sizes)
                                return {
                                    line.split()[0]: [float(word) for word in line.split()[1:]]
                                    for line in said.splitlines()
                                }

                            measured(results, self.name, f"{rtt:g} ms, {loss}%, {way.name}", repetition, take)

    def body(self, results: Results) -> str:
        """What was measured, in Markdown."""
        found: dict[tuple[float, int, str], list[Run]] = defaultdict(list)
        for run in results.of(self.name):
            rtt, loss, name = run["contender"].split(", ", 2)
            found[float(rtt.split()[0]), int(loss.rstrip("%")), name].append(run)
        lines: dict[tuple[float, int, str], list[str]] = {}
        for key, runs in found.items():
            means = [
                [statistics.mean(run[str(size)]) for run in runs if str(size) in run] for size in self.sizes
            ]
            lines[key] = [shown(sorted(each), 1e3, self.digits, len(runs)) for each in means]
        for rtt in {rtt for rtt, _, _ in found}:
            limits = (rtt / 2 + size * 8 / RATE_BPS / GOODPUT * 1e3 for size in self.sizes)
            lines[rtt, 0, "*the limit, τ/2 + B/C*"] = [f"{each:.{self.digits}f}" for each in limits]
        head = ["RTT", "loss", "over", *(f"{size:,} B" for size in self.sizes)]
        words = (
            f"Mean of {self.exchanges} exchanges after one to warm up, ms; with several runs their median "
            "and range."
        )
        if self.bound:
            words += " Each rank has a processor of its own, and so has the link over which it sends."
        table = [
            [f"{rtt:g} ms", f"{loss}%", name, *lines[rtt, loss, name]] for rtt, loss, name in sorted(lines)
        ]
        return f"{words}\n\n{page.table(head, table)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stencil:
    """A halo exchange with neighbours, 200 iterations, over two and four hosts."""

    name: str = "stencil"
    title: str = "A stencil: 200 iterations, each waits for a row of 64 KiB of both neighbours"
    rtts_ms: Sequence[float] = (0.4, 11.8, 45.6, 91.6, 183, 366)
    losses: Sequence[int] = (0, 1, 5, 10)
    # Over RTTs of `far_ms` and more TCP takes minutes, most of them waiting: so many cases run at a time.
    far_ms: float = 45.6
    beside: int = 6

    def run(self, results: Results, repetitions: int) -> None:
        """Measures what is not measured yet of it."""
        program = compiled(SHARED_PROGRAMS / "mpi_stencil.c")
        for repetition in range(1, repetitions + 1):
            cases = list(itertools.product(self.rtts_ms, (2, 4), self.losses))
            for case in cases:
                if case[0] < self.far_ms:
                    self.measure(results, program, repetition, case)
            # Those that take longest begin first.
            far = sorted((case for case in cases if case[0] >= self.far_ms), reverse=True)
            with ThreadPoolExecutor(max_workers=self.beside) as pool:
                for done in [pool.submit(self.measure, results, program, repetition, each) for each in far]:
                    done.result()

    def measure(self, results: Results, program: str, repetition: int, case: tuple[float, int, int]) -> None:
        """Has the program run by every way, in turn over the same emulated hosts."""
        rtt, hosts, loss = case
        ways = (TCP, EAGER_TCP, UCX, *(ours(each, rate="10gbit") for each in TRANSPORTS))
        with emulated(rtt, loss, hosts, seed=repetition) as place:
            for way in ways:

                def take(way: Way = way) -> Run:
                    said = place.run(way, "abcd"[:hosts], program, "64", "8192", "200")
                    _, checksum, _, seconds = said.split()[-4:]
                    return {"seconds": float(seconds), "checksum": checksum}

                measured(
                    results, self.name, f"{hosts} hosts, {rtt:g} ms, {loss}%, {way.name}", repetition, take
                )

    def body(self, results: Results) -> str:
        """What was measured, in Markdown."""
        runs = sorted(results.of(self.name), key=lambda run: place_of(run["contender"]))
        return compared(runs, "seconds", "s", 2)


def place_of(case: str) -> tuple[float, ...]:
    """Where a case of the stencil stands: by hosts, RTT and loss."""
    return tuple(float(word.split()[0].rstrip("%")) for word in case.split(", ")[:3])


def compared(runs: Sequence[Run], key: str, unit: str, digits: int) -> str:
    """Cases of `…, WAY` as a table: a column for each way, with its ratio to the first."""
    cases: dict[str, dict[str, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        case, way = run["contender"].rsplit(", ", 1)
        cases[case][way].append(run)
    ways = list(dict.fromkeys(way for found in cases.values() for way in found))
    lines = []
    for case, found in cases.items():
        first = medians(found.get(ways[0], []), key)
        cells = []
        for way in ways:
            values = medians(found.get(way, []), key)
            ratio = (
                f", {statistics.median(first) / statistics.median(values):.1f}×"
                if values and first and way != ways[0]
                else ""
            )
            own = found.get(way, [])
            cells.append(shown(values, 1.0, digits, len(own)) + ratio if own else "–")
        lines.append([case, *cells])
    return page.table(["case", *(f"{way}, {unit}" if way == ways[0] else way for way in ways)], lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class PingPong:
    """There and back on one host."""

    name: str = "pingpong"
    title: str = "Ping-pong on one host"

    def run(self, results: Results, repetitions: int) -> None:
        """Measures what is not measured yet of it."""
        program = compiled(PROGRAMS / "mpi_pingpong.c")
        near = [ours(each, FARLINK_SHM="1") for each in TRANSPORTS]
        far = [ours(each, label=WITHOUT, FARLINK_SHM="0") for each in TRANSPORTS]
        ways = [TCP, NET, *near, *far]
        for repetition in range(1, repetitions + 1):
            for way in ways:

                def take(way: Way = way) -> Run:
                    lines = run_here(way, 2, program, "2000", "8", "1048576").splitlines()
                    small, large = (float(line.split()[1]) for line in lines)
                    return {"latency": small, "bandwidth": 1048576 / large}

                measured(results, self.name, way.name, repetition, take)

    def body(self, results: Results) -> str:
        """What was measured, in Markdown."""
        runs = results.of(self.name)
        lines = []
        for way in dict.fromkeys(run["contender"] for run in runs):
            own = [run for run in runs if run["contender"] == way]
            figures = (("latency", 1e6), ("bandwidth", 1e-9))
            lines.append([way, *(shown(medians(own, key), scale, 2, len(own)) for key, scale in figures)])
        return page.table(["over", "8 B, µs one way", "1 MiB, GB/s"], lines)


# One host's messages in datagrams, as if to others: what transport it is matters then.
WITHOUT = " without shared memory"

MELT = """
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 12 0 12 0 12
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287 loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
neigh_modify every 20 delay 0 check no
fix 1 all nve
thermo 25
run {steps}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lammps:
    """LAMMPS: a melt on one host with four ranks, and over two hosts."""

    name: str = "lammps"
    title: str = "LAMMPS: a melt of 6,912 atoms"

    def run(self, results: Results, repetitions: int) -> None:
        """Measures what is not measured yet of it."""
        WORK.mkdir(parents=True, exist_ok=True)
        ways = [TCP, *(ours(each, rate="10gbit") for each in TRANSPORTS)]
        for repetition in range(1, repetitions + 1):
            for way in ways:
                self.measure(results, repetition, "4 ranks on one host", way, 200, None)
            for transport in TRANSPORTS:
                way = ours(transport, label=WITHOUT, FARLINK_SHM="0")
                self.measure(results, repetition, "4 ranks on one host", way, 200, None)
            for loss in (0, 1):
                with emulated(11.8, loss, 2, seed=repetition) as place:
                    for way in ways:
                        case = f"two hosts at 11.8 ms with {loss}% loss"
                        self.measure(results, repetition, case, way, 100, place)

    def measure(
        self, results: Results, repetition: int, case: str, way: Way, steps: int, place: Site | None
    ) -> None:
        """Runs LAMMPS once, on this host or on two emulated ones."""

        def take() -> Run:
            words = ("lmp", "-in", melt(steps), "-log", "none")
            return loop(run_here(way, 4, *words) if place is None else place.run(way, "ab", *words))

        measured(results, self.name, f"{case}, {way.name}", repetition, take)

    def body(self, results: Results) -> str:
        """What was measured, in Markdown."""
        runs = results.of(self.name)
        output: dict[str, set[str]] = defaultdict(set)
        for run in runs:
            if "thermo" in run:
                output[run["contender"].rsplit(", ", 1)[0]].add(run["thermo"])
        same = all(len(each) == 1 for each in output.values())
        words = (
            "The thermodynamic output of all runs of a case is the same, to the last digit."
            if same
            else "**The thermodynamic output differs.**"
        )
        return f"{compared(runs, 'seconds', 's', 2)}\n\n{words}"


def melt(steps: int) -> str:
    """A script for LAMMPS."""
    path = WORK / f"melt-{steps}.in"
    path.write_text(MELT.format(steps=steps))
    return str(path)


def loop(said: str) -> Run:
    """The seconds that LAMMPS says its loop took, and its thermodynamic output."""
    took = re.search(r"Loop time of ([\d.]+)", said)
    lines = re.findall(r"^ +\d+ +-?[\d.]+ .*$", said, re.MULTILINE)
    if took is None or not lines:
        raise FailedError(f"LAMMPS said nothing of its run: {said[-300:]}")
    return {"seconds": float(took[1]), "thermo": "\n".join(lines)}


def emulated(rtt_ms: float, loss: int, hosts: int, seed: int) -> contextlib.AbstractContextManager[Site]:
    """Hosts 10 Gb/s apart, or around a core."""
    wide = () if hosts == 2 else ("--hosts", str(hosts))
    options = (
        "--rate",
        "10gbit",
        "--rtt",
        f"{rtt_ms}ms",
        "--mtu",
        "9000",
        "--loss",
        f"{loss}%",
        "--seed",
        str(seed),
    )
    return site(*wide, *options)
