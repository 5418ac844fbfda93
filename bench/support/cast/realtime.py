"""The study of real-time scheduling: a fifth of the receivers' hosts has other work, too."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median, stdev
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure

from support import page
from support.cast.casters import NULL, Job, ours
from support.cast.casting import SOURCE, WORK, Case, make_file, measure
from support.cast.star import Star
from support.cast.streams import MB, counted, in_turn, keep, well
from support.connection import ROOT
from support.watching import Watch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from support.cast.casting import Run
    from support.results import Results

SIZE = 128 * MB
COUNTS = (5, 10, 15, 20)
SETS = 5
PROGRAMS = 2
RATE_BPS = 95 * MB
MTU = 1500
SVG = ROOT / "bench" / "cast-realtime.svg"
# Hashes, and writes to the disk what it has hashed, for as long as it is let.
LOAD = """
import hashlib, os, sys
block = os.urandom(1 << 20)
print("loads", flush=True)
while True:
    with open(sys.argv[1], "wb") as file:
        for _ in range(32):
            for _ in range(8):
                hashlib.sha256(block).digest()
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Realtime:
    """128 MB to 5 to 20 receivers; a repetition is a transfer for each of five sets of loaded hosts."""

    name: str = "realtime"
    title: str = "A fifth of the hosts loaded: 128 MB at 95 Mb/s, with and without --realtime at both ends"

    def cases(self, count: int) -> list[Case]:
        """With and without, for each loaded set."""
        ordinary = ours("farlink cast")
        realtime = ours("farlink cast --realtime", "--realtime", receive=("--realtime",))
        return [
            Case(caster=caster, label=f"{count} receivers, set {number + 1}")
            for caster in (ordinary, realtime)
            for number in range(SETS)
        ]

    def run(self, results: Results, repetitions: int) -> None:
        """What is not measured yet of it."""
        job = Job(source=SOURCE, into=NULL, rate_bps=RATE_BPS, mtu=MTU)
        for count in COUNTS:
            left = in_turn(self.name, self.cases(count), repetitions, results)
            if not left:
                continue
            with Star(count, "--rate", "100mbit", "--mtu", str(MTU), "--rtt", "0.4ms") as star:
                make_file(star, SIZE)
                for repetition, case in left:
                    number = int(case.label.rsplit(maxsplit=1)[1]) - 1
                    each = count // SETS
                    hosts = star.receivers[number * each : (number + 1) * each]
                    with loaded(star, hosts):
                        run = measure(star, case, job)
                    extra = {"loaded": hosts, "count": count, "realtime": "--realtime" in case.caster.name}
                    keep(results, self.name, repetition, run | extra)

    def body(self, results: Results) -> str:
        """Throughput of loaded receivers and of the others, and what they lost."""
        rows = []
        shown: dict[tuple[bool, bool], list[tuple[int, list[float]]]] = {}
        for count in COUNTS:
            for realtime in (False, True):
                runs = [
                    run
                    for run in results.of(self.name)
                    if run["count"] == count and run["realtime"] == realtime
                ]
                if not (good := well(runs)):
                    continue
                cells: list[object] = [count, "yes" if realtime else "no"]
                for is_loaded in (False, True):
                    records = of_hosts(good, is_loaded=is_loaded)
                    mbit = [8 * SIZE / record["duration_s"] / MB for record in records]
                    lost = sum(record["cast"]["lost"] for record in records)
                    share = lost / max(1, sum(record["cast"]["packets"] for record in records))
                    spread = f" ({stdev(mbit):.2f})" if len(mbit) > 1 else ""
                    cells += [f"{mean(mbit):.2f}{spread}", f"{share:.3%}"]
                    shown.setdefault((realtime, is_loaded), []).append((count, mbit))
                sender = median(run["sender"]["duration_s"] for run in good)
                rows.append([*cells, f"{sender:.3f}", *counted(runs)])
        if shown:
            draw(shown, SVG)
        others, loads = "not loaded, Mb/s", "loaded, Mb/s"
        head = ["receivers", "real time", others, "lost", loads, "lost", "all have it, s", "n", "late"]
        figure = f"![throughput against receivers]({SVG.name})" if shown else ""
        return f"{page.table(head, rows)}\n\n{figure}".strip()


@contextlib.contextmanager
def loaded(star: Star, hosts: Sequence[str]) -> Iterator[None]:
    """Two programs for processor and disk on each of `hosts`, from when they run until the context ends."""
    files = [WORK / f"load-{host}-{number}" for host in hosts for number in range(PROGRAMS)]
    with Watch() as watch:
        for file, host in zip(files, (host for host in hosts for _ in range(PROGRAMS)), strict=True):
            watch.start(file.name, star.on(host, sys.executable, "-I", "-c", LOAD, str(file)))
        for file in files:
            watch.until(file.name, "loads", limit_s=30)
        yield
    for file in files:
        Path(file).unlink(missing_ok=True)


def of_hosts(runs: Sequence[Run], *, is_loaded: bool) -> list[Run]:
    """The records of the receivers that were loaded, or of those that were not."""
    return [
        record
        for run in runs
        for host, record in run["receivers"].items()
        if (host in run["loaded"]) == is_loaded
    ]


def draw(shown: dict[tuple[bool, bool], list[tuple[int, list[float]]]], svg: Path) -> None:
    """Mean throughput and its standard deviation against the number of receivers."""
    style: Any = {"font.size": 8, "axes.grid": True, "grid.color": "#dddddd", "svg.hashsalt": "farlink"}
    with mpl.rc_context({**style, "svg.fonttype": "none"}):
        figure = Figure(figsize=(8, 3), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        for panel, is_loaded in zip(panels, (False, True), strict=True):
            for realtime, color, mark in ((False, "#D55E00", "o"), (True, "#0072B2", "s")):
                points = shown.get((realtime, is_loaded), [])
                means = [mean(values) for _, values in points]
                errors = [stdev(values) if len(values) > 1 else 0.0 for _, values in points]
                places = [count + (0.2 if realtime else -0.2) for count, _ in points]
                label = "--realtime" if realtime else "ordinary"
                panel.errorbar(places, means, yerr=errors, color=color, marker=mark, capsize=3, label=label)
            panel.set_title("loaded hosts" if is_loaded else "hosts without load", loc="left")
            panel.set_xlabel("receivers")
            panel.set_xticks(COUNTS)
            panel.legend()
        panels[0].set_ylabel("Mb/s")
        figure.savefig(svg, format="svg", metadata={"Date": None})
