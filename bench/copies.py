"""Is `farlink copy` as fast as its peers, and does it lose nothing? Writes bench/copies.md.

Every row of the page is measured by itself, ours and the peers' commands in turn over one emulated
connection; what was measured stays under target/bench-copies, and an interrupted bench goes on where it was.

usage: copies.py [--row NAME]... [--repetitions N] [--again] [--page]
"""

from __future__ import annotations

import random
import shutil
import sys
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from support import page
from support.connection import Connection
from support.contenders import WORK, Contender, Job, gridftp, make_keys, need, ours, rclone, rsync, tar
from support.copies import (
    DESTINATION,
    SOURCE,
    limit_ratio,
    make_file,
    make_tree,
    measure,
    servers,
)
from support.results import Results, Run, asked
from support.trials import TRIALS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from support.trials import Trial

GIB = 1 << 30
RTTS = ("0.4ms", "91.6ms", "366ms")
REPETITIONS = 3
PREFAULT = "2GiB"
FILE = Job(source=SOURCE, destination=DESTINATION)
TREE = Job(source=SOURCE, destination=DESTINATION, tree=True)
ENDLESS = Job(source="/dev/zero", destination="/dev/null", length=20 * GIB)
SMALL_FILES, SMALL_BYTES = 10_000, 10 << 10

OURS = "farlink copy"
CIRCUIT = "farlink copy --circuit 10gbit"
KEYED = "farlink copy, encrypted"
KEYED_CIRCUIT = "farlink copy --circuit 10gbit, encrypted"
SSH = "farlink copy, by ssh, encrypted"
UNVERIFIED = "farlink copy --no-verify"
AGAIN = "farlink copy, again"
KEYED_AGAIN = "farlink copy, again, encrypted"

GRIDFTP = tuple(gridftp(streams, buffer=buffer) for streams in (1, 2, 4, 8) for buffer in (128 << 20, None))
OURS_BOTH = (ours(OURS), ours(CIRCUIT, "--circuit", "10gbit"))
PROTECTED = (
    ours(KEYED, way="keyed"),
    ours(KEYED_CIRCUIT, "--circuit", "10gbit", way="keyed"),
    ours(SSH, way="ssh"),
)


class Row:
    """One table: the same job by several contenders, in turn."""

    def __init__(
        self,
        name: str,
        title: str,
        *,
        connection: Sequence[str],
        job: Job,
        contenders: Sequence[Contender],
        make: Callable[[Connection], None],
        wanted: int,
        limit_s: float = 900.0,
    ) -> None:
        self.name, self.title = name, title
        self.connection = ("--rate", "10gbit", "--prefault", PREFAULT, *connection)
        self.job, self.contenders, self.make, self.wanted = job, contenders, make, wanted
        self.limit_s = limit_s

    def run(self, results: Results, repetitions: int) -> None:
        """What is not measured yet of it."""
        draw = random.Random(self.name)
        left = [
            (repetition, contender)
            for repetition in range(repetitions)
            for contender in draw.sample(self.contenders, len(self.contenders))
            if not results.has(self.name, contender.name, repetition)
        ]
        if not left:
            return
        with Connection(*self.connection) as connection, servers(connection, [each for _, each in left]):
            self.make(connection)
            shutil.rmtree(WORK / "state", ignore_errors=True)
            for contender in self.contenders:
                if contender.again:
                    first = measure(connection, contender, self.job, wanted=self.wanted, limit_s=self.limit_s)
                    if "error" in first:
                        sys.exit(f"{contender.name}, the copy before those that count: {first['error']}")
            for repetition, contender in left:
                run = measure(connection, contender, self.job, wanted=self.wanted, limit_s=self.limit_s)
                results.add({"row": self.name, "repetition": repetition, **run})
                said = run.get("error") or f"{run['wall_s']:.3f} s"
                print(f"{self.name} {repetition + 1}/{repetitions} {contender.name}: {said}", flush=True)

    def table(self, results: Results) -> str:
        """The row's table: fastest first; `n` counts the runs that count, of all."""
        rows = []
        for contender in self.contenders:
            runs = results.of(self.name, contender.name)
            well = [run for run in runs if "error" not in run]
            if not runs:
                continue
            late = sum(run["overrun"] for run in runs)
            if not well:
                errors = runs[-1]["error"].replace("|", "/")
                rows.append(
                    (float("inf"), [contender.name, f"failed: {errors}", "", "", "", f"0/{len(runs)}", late])
                )
                continue
            walls = [run["wall_s"] for run in well]
            ratios, phases, bound = "", "", ""
            if contender.ours:
                ratios = spread([limit_ratio(run) for run in well])
                phases = spread([run["record"]["duration_s"] for run in well])
                bound = well[-1]["bound"]
            row = [contender.name, spread(walls), phases, ratios, bound, f"{len(well)}/{len(runs)}", late]
            rows.append((median(walls), row))
        head = ["", "whole command, s", "data phase, s", "limit ratio", "bound by", "n", "late"]
        return page.table(head, [row for _, row in sorted(rows, key=lambda each: each[0])])

    def summary(self, results: Results) -> str:
        """Ours by the best of the peers."""
        best = {each.name: middle(results.of(self.name, each.name)) for each in self.contenders}
        peers = {name: time for name, time in best.items() if time is not None and not is_ours(name)}
        mine = {name: time for name, time in best.items() if time is not None and is_ours(name)}
        if not peers or not mine:
            return ""
        peer = min(peers, key=lambda name: peers[name])
        said = [f"{name} {peers[peer] / time:.2f}×" for name, time in mine.items()]
        return f"The best peer, {peer}, takes so many times as long as ours: {'; '.join(said)}."


def is_ours(name: str) -> bool:
    """Whether a contender is."""
    return name.startswith(OURS)


def middle(runs: Sequence[Run]) -> float | None:
    """The median of the whole commands that went well."""
    walls = [run["wall_s"] for run in runs if "error" not in run]
    return median(walls) if walls else None


def spread(values: Sequence[float]) -> str:
    """Median and range."""
    return f"{median(values):.3f} ({min(values):.3f}-{max(values):.3f})"


def file_row(name: str, title: str, size: int, *contenders: Contender, options: Sequence[str]) -> Row:
    """A row of one file of `size` bytes."""
    return Row(
        name,
        title,
        connection=options,
        job=FILE,
        contenders=contenders,
        make=lambda connection: make_file(connection, size),
        wanted=size,
        # CUBIC with losses would take minutes for what others move in seconds.
        limit_s=120.0,
    )


def all_rows() -> list[Row]:
    """Every table of one job."""
    small = (rsync(), tar(), rclone(16), rclone(64), gridftp(1, "-cc", "16", "-pp", buffer=None))
    lossy = (*OURS_BOTH, *(gridftp(streams, buffer=None) for streams in (1, 4, 8)), rsync())
    verified = (
        *OURS_BOTH,
        ours(f"{CIRCUIT} --no-verify", "--circuit", "10gbit", "--no-verify"),
        ours(UNVERIFIED, "--no-verify"),
    )
    return [
        *(
            file_row(
                f"file-{rtt}",
                f"2 GiB file, {rtt}",
                2 * GIB,
                *(*OURS_BOTH, *PROTECTED, *peers, rsync()),
                options=("--rtt", rtt),
            )
            # Buffers of a fixed size are granted up to net.core.rmem_max: over 366 ms that takes minutes.
            for rtt, peers in zip(RTTS, (GRIDFTP, GRIDFTP, GRIDFTP[1::2]), strict=True)
        ),
        *(
            # Most of it is what is said before and after. The first run is a first visit: there is no cookie.
            file_row(
                f"short-{rtt}",
                f"16 MiB file, {rtt}",
                GIB >> 6,
                *(*OURS_BOTH, *PROTECTED, gridftp(1, buffer=None), gridftp(4, buffer=None), rsync()),
                options=("--rtt", rtt),
            )
            for rtt in RTTS[1:]
        ),
        *(
            file_row(
                f"again-{rtt}-{size >> 20}MiB",
                f"{size >> 20} MiB file, {rtt}, where copies were made before",
                size,
                *OURS_BOTH,
                ours(AGAIN, again=True),
                ours(KEYED, way="keyed"),
                ours(KEYED_AGAIN, way="keyed", again=True),
                gridftp(1, buffer=None),
                rsync(),
                options=("--rtt", rtt),
            )
            for rtt in RTTS[1:]
            for size in (2 * GIB, GIB // 4)
        ),
        *(
            Row(
                f"long-{rtt}",
                f"20 GiB, {rtt}, /dev/zero to /dev/null",
                connection=("--rtt", rtt),
                job=ENDLESS,
                contenders=(*OURS_BOTH, *PROTECTED[:2], *GRIDFTP[1::2]),
                make=lambda _: None,
                wanted=20 * GIB,
                # Ours take 18 to 25 s; a connection of GridFTP's may crawl for minutes after its losses.
                limit_s=180.0,
            )
            for rtt in RTTS
        ),
        *(
            Row(
                f"small-{rtt}",
                f"10,000 files of 10 KiB, {rtt}",
                connection=("--rtt", rtt),
                job=TREE,
                contenders=(*OURS_BOTH, *PROTECTED, *peers),
                make=lambda connection: make_tree(connection, count=SMALL_FILES, size=SMALL_BYTES),
                wanted=SMALL_FILES,
                limit_s=300.0,
            )
            for rtt, peers in (("91.6ms", small), ("0.4ms", small[:3]))
        ),
        *(
            file_row(
                f"loss-{loss}-{congestion}",
                f"{size >> 20} MiB file, 91.6 ms, {loss} loss, {congestion} the default of both hosts",
                size,
                *lossy,
                options=("--rtt", "91.6ms", "--loss", loss, "--congestion", congestion),
            )
            for loss, size in (("0.1%", GIB // 4), ("1%", GIB // 16))
            for congestion in ("cubic", "bbr")
        ),
        *(
            # Where the beginning is a small part of it. One connection, and so rsync, would take ten minutes.
            file_row(
                f"loss-0.1%-{congestion}-2GiB",
                f"2 GiB file, 91.6 ms, 0.1% loss, {congestion} the default of both hosts",
                2 * GIB,
                *(*OURS_BOTH, *(gridftp(streams, buffer=None) for streams in (4, 8))),
                options=("--rtt", "91.6ms", "--loss", "0.1%", "--congestion", congestion),
            )
            for congestion in ("cubic", "bbr")
        ),
        *(
            file_row(
                f"verify-{rtt}",
                f"2 GiB file, {rtt}, with and without verification",
                2 * GIB,
                *verified,
                options=("--rtt", rtt),
            )
            for rtt in ("0.4ms", "91.6ms")
        ),
    ]


def write(rows: Sequence[Row], results: Results) -> None:
    """The page, of all that was measured."""

    def of_row(row: Row) -> page.Section:
        def body() -> str:
            return f"{row.table(results)}\n\n{row.summary(results)}"

        return results.section(row.name, row.title, body)

    def of_trial(trial: Trial) -> page.Section:
        return results.section(trial.name, trial.title, lambda: trial.table(results.of(trial.name)))

    page.write_rows(
        Path(__file__).with_suffix(".md"),
        title="Is farlink copy as fast as its peers, and does it lose nothing?",
        question="Files over one emulated 10 Gb/s connection (MTU 9000, queue 50 ms), both hosts and the "
        "emulator on the same cores, files in memory; ours and the peers' commands in turn, the same source "
        "for all. The time is that of the whole command, from its start to its end; the data phase and its "
        "limit ratio, (τ/2 + B/C) / measured, are in our record. Medians and ranges; `n` is how many runs "
        "went well, `late` in how many the emulator fell behind: they are counted with the others.",
        command="make bench-copies",
        sections=[*map(of_row, rows), *map(of_trial, TRIALS.values())],
    )


def main() -> None:
    """Measures what is not measured yet, and writes the page."""
    rows = all_rows()
    wanted = asked(
        "Measure farlink copy beside its peers; write bench/copies.md.",
        [row.name for row in rows] + list(TRIALS),
        REPETITIONS,
    )
    results = Results(path=WORK / "results.jsonl")
    if wanted.again:
        results.forget(wanted.rows)
    if not wanted.page:
        need()
        make_keys()
        try:
            for row in rows:
                if row.name in wanted.rows:
                    row.run(results, wanted.repetitions)
            for name, trial in TRIALS.items():
                if name in wanted.rows:
                    trial.run(results)
        finally:
            for directory in ("keys", "ssh"):
                shutil.rmtree(WORK / directory, ignore_errors=True)
    write(rows, results)


if __name__ == "__main__":
    main()
