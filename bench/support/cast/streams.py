"""Rows in which one receiver is slow: the study's single files, and streams of files beside the peers."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from statistics import mean, median, stdev
from typing import TYPE_CHECKING

from support import page
from support.cast.casters import NULL, Caster, Job, offers, ours, udpcast, uftp
from support.cast.casting import INTO, SOURCE, Case, fast, make_file, make_tree, measure
from support.cast.star import LOSING, NOBODY, STOPPED, Star, ceiling_bps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from support.cast.casting import Run
    from support.results import Results

MB, GB = 10**6, 10**9
KIB, MIB = 1 << 10, 1 << 20
STREAM_RATE_BPS = 380 * MB
# Of the study's receptions without loss (multicast.md, 3.3), in its order of sizes.
STUDY_SIZES = {"512 MB": 512 * MB, "1 GB": GB, "2 GB": 2 * GB, "4 GB": 4 * GB}
# Beside the group's rate, as the study's repairs were by TCP: more than one receiver that loses 5% asks for.
REPAIR = "50mbit"
SLOWS = (NOBODY, LOSING, STOPPED)
# The peers, who cannot keep nothing, and ours beside them keep what they receive: seven copies of
# 512 MB fit in memory.
PEER_SIZE = "512 MB"


def in_turn(name: str, cases: Sequence[Case], repetitions: int, results: Results) -> list[tuple[int, Case]]:
    """What is not measured yet, a repetition after the other, each in an order of its own."""
    draw = random.Random(name)
    return [
        (repetition, case)
        for repetition in range(repetitions)
        for case in draw.sample(cases, len(cases))
        if not results.has(name, case.name, repetition)
    ]


def keep(results: Results, row: str, repetition: int, run: Run) -> None:
    """Keeps a run, and says so."""
    results.add({"row": row, "repetition": repetition, **run})
    times = ", ".join(f"{host} {time:.3f}" for host, time in run.get("times_s", {}).items())
    said = run.get("error") or times
    print(
        f"{row} {repetition + 1} {run['contender']}: {said}{' late' * run.get('overrun', False)}", flush=True
    )


def well(runs: Sequence[Run]) -> list[Run]:
    """The runs that ended as they should."""
    return [run for run in runs if "error" not in run]


def counted(runs: Sequence[Run]) -> list[object]:
    """Two cells: how many runs went well of all, and in how many the emulator was late."""
    return [f"{len(well(runs))}/{len(runs)}", sum(run.get("overrun", False) for run in runs)]


def spread(values: Sequence[float], form: str = "{:.3f}") -> str:
    """Median and range."""
    low, high = form.format(min(values)), form.format(max(values))
    return f"{form.format(median(values))} ({low}-{high})" if len(values) > 1 else form.format(values[0])


def change(before: Sequence[float], after: Sequence[float]) -> str:
    """Of the median."""
    return f"{median(after) / median(before) - 1:+.1%}"


def mean_sd(values: Sequence[float]) -> str:
    """Mean and standard deviation, as the study has them."""
    return f"{mean(values):.1f} ({stdev(values):.1f})" if len(values) > 1 else f"{values[0]:.1f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """`count` files of `size` bytes to four receivers, the first of which has a receive buffer of 64 KiB."""

    name: str
    title: str
    count: int
    size: int
    casters: Sequence[Caster] = field(default_factory=lambda: (ours(), uftp(), udpcast()))

    @property
    def cases(self) -> list[Case]:
        """Each tool with nobody stopped and with one."""
        return [Case(caster=caster, slow=slow) for caster in self.casters for slow in (NOBODY, STOPPED)]

    def run(self, results: Results, repetitions: int) -> None:
        """What is not measured yet of it."""
        left = in_turn(self.name, self.cases, repetitions, results)
        if not left:
            return
        job = Job(source=SOURCE, into=INTO, rate_bps=STREAM_RATE_BPS, mtu=1500, files=self.count, tree=True)
        with Star(4, "--rate", "1gbit", "--mtu", "1500", "--rtt", "0.4ms") as star:
            make_tree(star, count=self.count, size=self.size)
            for repetition, case in left:
                run = measure(star, case, job, small_buffer=True, limit_s=60)
                keep(results, self.name, repetition, run)

    def body(self, results: Results) -> str:
        """When the fast receivers had everything, and by how much one that is stopped changed that."""
        rows: list[list[object]] = []
        for caster in self.casters:
            calm, one = (
                results.of(self.name, Case(caster=caster, slow=slow).name) for slow in (NOBODY, STOPPED)
            )
            if not well(calm) or not well(one):
                said = next((run["error"] for run in [*calm, *one] if "error" in run), "not measured")
                rows.append(
                    [caster.name, f"failed: {said}".replace("|", "/"), *[""] * 4, *counted(calm + one)]
                )
                continue
            before, after = ([median(fast(run)) for run in well(runs)] for runs in (calm, one))
            last = change(*([max(fast(run)) for run in well(runs)] for runs in (calm, one)))
            slow = [next(iter(run["times_s"].values())) for run in well(one)]
            cells = [spread(before), spread(after), change(before, after), last, spread(slow)]
            rows.append([caster.name, *cells, *counted(calm + one)])
        changes = ["change", "of the slowest fast one"]
        head = ["", "nobody stopped, s", "one stopped, s", *changes, "the stopped one, s", "n", "late"]
        return page.table(head, rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """The study's table: one file to seven receivers at 600 Mb/s, nobody slow, and one that is."""

    name: str
    rate_bps: int
    mtu: int
    receivers: int = 7
    # Times that ours by itself is measured, at least, as often as in the study.
    turns: int = 1

    @property
    def title(self) -> str:
        """Its heading."""
        return f"One file to seven receivers at {self.rate_bps // MB} Mb/s, MTU {self.mtu}"

    def cases(self, size: str) -> list[Case]:
        """All of them for ours, which is first, and the peers where memory has room for what they write."""
        casters = [ours()]
        if offers("send", "--repair-rate"):
            casters.append(ours(f"farlink cast --repair-rate {REPAIR}", "--repair-rate", REPAIR))
        if size == PEER_SIZE:
            casters += [uftp(), udpcast()]
        return [Case(caster=caster, label=size, slow=slow) for caster in casters for slow in SLOWS]

    def run(self, results: Results, repetitions: int) -> None:
        """What is not measured yet of it."""
        for size in STUDY_SIZES:
            cases = self.cases(size)
            self.measure(results, size, cases, repetitions)
            self.measure(results, size, cases[: len(SLOWS)], self.turns)

    def measure(self, results: Results, size: str, cases: Sequence[Case], repetitions: int) -> None:
        """What is not measured yet of `cases`."""
        left, length = in_turn(self.name, cases, repetitions, results), STUDY_SIZES[size]
        if not left:
            return
        rtt = ("--rtt", "0.4ms")
        with Star(self.receivers, "--rate", "1gbit", "--mtu", str(self.mtu), *rtt) as star:
            make_file(star, length)
            for repetition, case in left:
                into = INTO if size == PEER_SIZE else NULL
                job = Job(source=SOURCE, into=into, rate_bps=self.rate_bps, mtu=self.mtu)
                # A peer that waits for what will not come would wait for ever.
                limit_s = 20 + 10 * 8 * length / self.rate_bps
                run = measure(star, case, job, limit_s=limit_s)
                keep(results, self.name, repetition, run | {"size": length})

    def body(self, results: Results) -> str:
        """Throughput of each reception, as a share of what our packets can carry, and the slow one's."""
        rows: list[list[object]] = []
        for size in STUDY_SIZES:
            for case in self.cases(size):
                runs = results.of(self.name, case.name)
                if not runs:
                    continue
                if not well(runs):
                    errors = runs[-1]["error"].replace("|", "/")
                    cells = [f"failed: {errors}", "", ""]
                    rows.append([size, case.caster.name, case.slow.name, *cells, *counted(runs)])
                    continue
                quick, slow = rates(case, runs)
                share = ""
                if case.caster.ours:
                    payload = well(runs)[-1]["sender"]["cast"]["payload_bytes"]
                    share = f"{median(quick) * MB / ceiling_bps(self.rate_bps, payload):.2%}"
                cells = [mean_sd(quick), share, mean_sd(slow) if slow else ""]
                rows.append([size, case.caster.name, case.slow.name, *cells, *counted(runs)])
        head = ["", "", "", "fast receptions, Mb/s", "of the ceiling", "the slow one's, Mb/s", "n", "late"]
        return page.table(head, rows)


def rates(case: Case, runs: Sequence[Run]) -> tuple[list[float], list[float]]:
    """Mb/s of every fast reception, and of the slow receiver's where there is one.

    Beside the peers, for all from the sender's first packet until the receiver says that it has the file;
    of ours alone, by the receiver's own clock, from its first packet to its last byte.
    """
    quick: list[float] = []
    slow: list[float] = []
    for run in well(runs):
        taken = dict(run["times_s"])
        if case.label != PEER_SIZE:
            taken = {host: record["duration_s"] for host, record in run["receivers"].items()}
        for number, time_s in enumerate(taken.values()):
            is_slow = case.slow and number == 0
            (slow if is_slow else quick).append(8 * run["size"] / time_s / MB)
    return quick, slow
