"""Does advice from 15% of a sweep find what the whole sweep finds? Writes bench/advice.md.

Replays a sweep that was measured: `bench/advice.py DIR`, or without DIR the one of `plans/variants.toml`
(about an hour and a quarter, which it measures first where that was not done; it goes on where it was
interrupted). An RTT is held out; among the others `farlink lab search` chooses its probes, each a run of the
sweep; `farlink lab advise` answers for the RTT that was held out, and what it advises is compared with the
best of all configurations there.
"""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
from farlink_lab.advice import Adviser
from farlink_lab.choice import Choice, Task
from farlink_lab.course import converted_bps
from farlink_lab.expectation import expected_bps
from farlink_lab.ground import AdviceError, Ground, Place, ground
from farlink_lab.records import read_records
from farlink_lab.search import Search

from support import page
from support.connection import FARLINK, ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from farlink_lab.records import Record

PLAN = ROOT / "plans" / "variants.toml"
OUT = ROOT / "target" / "bench-advice"
# The bars of the question.
SHARE, GOOD, OFTEN = 0.15, 0.95, 0.90
SEEDS = 20
RESAMPLES = 2000
TASKS = (
    Task(mode="duration", amount=10.0),
    Task(mode="size", amount=1e9),
    Task(mode="size", amount=1e10),
    Task(mode="size", amount=5e10),
)
Spot = tuple[Choice, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One answer: what was advised reaches so much of the best."""

    rtt_s: float
    task: Task
    seed: int
    ratio: float


class Sweep:
    """A sweep of ours, by configuration and RTT."""

    def __init__(self, directory: Path) -> None:
        """Reads its records."""
        self.ground = ground(read_records(directory / "records.jsonl").records)
        self.records = {(place.choice, place.rtt_s): place.records for place in self.ground.places}
        self.runs = sum(map(len, self.records.values()))

    def truth(self, rtt_s: float, task: Task) -> dict[Choice, float]:
        """The median of the runs of each configuration at one RTT, as they tell of `task`."""
        found = {}
        for choice in self.ground.choices:
            told = [
                known for run in self.records.get((choice, rtt_s), ()) if (known := converted_bps(run, task))
            ]
            rates = [rate for rate, by_course in told if not by_course] or [rate for rate, _ in told]
            if rates:
                found[choice] = median(rates)
        return found


class Probes:
    """Runs of a sweep, taken one by one, none of them at the RTT that is held out."""

    def __init__(self, sweep: Sweep, *, held_out: float, task: Task, seed: int) -> None:
        """Has taken none."""
        self.sweep, self.task = sweep, task
        self.draw = random.Random(f"{seed}")
        self.rtts = [float(rtt) for rtt in sweep.ground.rtt_s if rtt != held_out]
        self.left: dict[Spot, list[Record]] = {
            spot: self.draw.sample(runs, len(runs))
            for spot, runs in sweep.records.items()
            if spot[1] != held_out
        }
        self.taken: dict[Spot, list[Record]] = {}

    def take(self, spot: Spot) -> None:
        """One more run there."""
        self.taken.setdefault(spot, []).append(self.left[spot].pop())
        if not self.left[spot]:
            del self.left[spot]

    @property
    def ground(self) -> Ground:
        """What advice has from the probes."""
        places = (
            Place(choice=choice, rtt_s=rtt, records=tuple(runs)) for (choice, rtt), runs in self.taken.items()
        )
        return replace(self.sweep.ground, places=tuple(places))


def searched(probes: Probes, count: int) -> None:
    """Takes probes as `farlink lab search` does."""
    choices = probes.sweep.ground.choices
    search = Search(choices=choices, rtts_s=probes.rtts, task=probes.task, wire=probes.sweep.ground.measured)
    for _ in range(count):
        gains = search.gains()
        worth = {
            spot: gains[choices.index(spot[0]), probes.rtts.index(spot[1])] / (runs[-1].duration_s or 1.0)
            for spot, runs in probes.left.items()
        }
        probes.take(max(worth, key=lambda spot: worth[spot]))
        search.learn(probes.ground.observations(probes.task))


def scattered(probes: Probes, count: int) -> None:
    """Takes probes at random."""
    for _ in range(count):
        probes.take(probes.draw.choice(list(probes.left)))


def advised(probes: Probes, rtt_s: float) -> Choice | None:
    """What is advised by the probes; `None` where they tell nothing."""
    stood = probes.ground
    try:
        rates = Adviser(stood, probes.task).throughput_bps(rtt_s)
    except AdviceError:
        return None
    return stood.choices[int(np.argmax(rates))]


def cases(
    sweep: Sweep, choose: Callable[[float, Task, int], Choice | None], *, seeds: int = SEEDS
) -> list[Case]:
    """What `choose` gives for every inner RTT, task and seed."""
    found = []
    for rtt in map(float, sweep.ground.rtt_s[1:-1]):
        for task in TASKS:
            truth = sweep.truth(rtt, task)
            for seed in range(seeds):
                choice = choose(rtt, task, seed)
                ratio = truth.get(choice, 0.0) / max(truth.values()) if choice else 0.0
                found.append(Case(rtt_s=rtt, task=task, seed=seed, ratio=ratio))
    return found


def by_probes(
    sweep: Sweep, take: Callable[[Probes, int], None], count: int
) -> Callable[[float, Task, int], Choice | None]:
    """Advice from so many probes, taken so."""

    def choose(rtt_s: float, task: Task, seed: int) -> Choice | None:
        probes = Probes(sweep, held_out=rtt_s, task=task, seed=seed)
        take(probes, count)
        return advised(probes, rtt_s)

    return choose


def by_model(sweep: Sweep) -> Callable[[float, Task, int], Choice | None]:
    """The model alone; where it has several as the best, one of them by chance."""

    def choose(rtt_s: float, task: Task, seed: int) -> Choice | None:
        wire, choices = sweep.ground.measured, sweep.ground.choices
        rates = [float(expected_bps(each, np.array([rtt_s]), task=task, wire=wire)[0]) for each in choices]
        best = [each for each, rate in zip(choices, rates, strict=True) if rate >= max(rates) * 0.9999]
        return random.Random(f"{seed} {rtt_s} {task}").choice(best)

    return choose


def reached(found: Sequence[Case]) -> float:
    """The share of answers that reach the bar."""
    return float(np.mean([case.ratio >= GOOD for case in found]))


def row(name: str, runs: str, found: Sequence[Case]) -> list[str]:
    """One way to choose, with a bootstrap interval over the seeds."""
    draw = random.Random(1)
    seeds = sorted({case.seed for case in found})
    of_seed = {seed: [case for case in found if case.seed == seed] for seed in seeds}
    shares = {seed: reached(own) for seed, own in of_seed.items()}
    drawn = sorted(
        float(np.mean([shares[seed] for seed in draw.choices(seeds, k=len(seeds))])) for _ in range(RESAMPLES)
    )
    low, high = drawn[int(0.025 * RESAMPLES)], drawn[int(0.975 * RESAMPLES)]
    interval = f" ({100 * low:.0f}-{100 * high:.0f})" if len(seeds) > 1 else ""
    ratios = [case.ratio for case in found]
    return [
        name,
        runs,
        f"{100 * reached(found):.0f}%{interval}",
        f"{median(ratios):.3f}",
        f"{min(ratios):.3f}",
        str(len(found)),
    ]


def fixed(sweep: Sweep) -> list[list[str]]:
    """Every configuration, if it were always taken: how hard the question is."""
    found = [
        (choice, cases(sweep, lambda _rtt, _task, _seed, choice=choice: choice, seeds=1))  # type: ignore[misc]
        for choice in sweep.ground.choices
    ]
    found.sort(key=lambda each: -reached(each[1]))
    return [row(f"always {choice.name}", "all, in hindsight", own) for choice, own in found[:3]]


def split(found: Sequence[Case], name: str, key: Callable[[Case], str]) -> str:
    """The answers by RTT or by task."""
    values = list(dict.fromkeys(key(case) for case in found))
    rows = []
    for value in values:
        own = [case for case in found if key(case) == value]
        ratios = [case.ratio for case in own]
        rows.append([value, f"{100 * reached(own):.0f}%", f"{median(ratios):.3f}", f"{min(ratios):.3f}"])
    return page.table([name, "reach 95%", "median of best", "worst"], rows)


def body(sweep: Sweep, *, called: str) -> str:
    """What the page says."""
    spots, counted = len(sweep.records), sweep.ground
    few, more = int(SHARE * spots), int(SHARE * sweep.runs)
    by_search = cases(sweep, by_probes(sweep, searched, few))
    by_more = cases(sweep, by_probes(sweep, searched, more))
    rows = [
        row("search", f"{few} ({100 * few / sweep.runs:.1f}%)", by_search),
        row("search", f"{more} ({100 * more / sweep.runs:.1f}%)", by_more),
        row("probes at random", f"{few}", cases(sweep, by_probes(sweep, scattered, few))),
        row("probes at random", f"{more}", cases(sweep, by_probes(sweep, scattered, more))),
        row("the model alone", "0", cases(sweep, by_model(sweep))),
        *fixed(sweep),
    ]
    late = sum(record.overrun for runs in sweep.records.values() for record in runs)
    held = len(counted.rtt_s) - 2
    verdicts = ["holds" if reached(found) >= OFTEN else "does not hold" for found in (by_search, by_more)]
    sweep_said = (
        f"The sweep: {called}; {len(counted.choices)} configurations of `farlink` at "
        f"{len(counted.rtt_s)} RTTs are {spots} cells, {sweep.runs} runs that count, {late} of them late."
    )
    bar = (
        f"Bar: what is advised reaches {100 * GOOD:.0f}% of the best in {100 * OFTEN:.0f}% of the answers, "
        f"from probes of at most {100 * SHARE:.0f}%. Of the cells, a run a probe, that is {few} probes: **it "
        f"{verdicts[0]}**. Of the runs that is {more}: **it {verdicts[1]}**."
    )
    method = (
        f"Each of the {held} inner RTTs is held out in turn: no probe is there. Asked is for "
        f"{', '.join(task.shown for task in TASKS)}, with {SEEDS} draws of which run of a cell a probe sees. "
        "The best is the highest median of the runs at the held-out RTT. A run of another size or duration "
        "tells of the one asked by its two phases, for what is advised and for the best alike: sizes test "
        "the choice here, and not the conversion."
    )
    interval = (
        "The interval is a 95% bootstrap over the draws: it says what luck in the probes does, not what "
        "another machine's sweep would."
    )
    head = ["chosen by", "probes (of runs)", "reach 95%", "median of best", "worst", "answers"]
    parts = [
        sweep_said,
        bar,
        method,
        page.table(head, rows),
        interval,
        "## By RTT and by task",
        *(
            table
            for found, count in ((by_search, few), (by_more, more))
            for table in (
                split(found, f"held-out RTT, {count} probes", lambda case: f"{1e3 * case.rtt_s:g} ms"),
                split(found, f"task, {count} probes", lambda case: case.task.shown),
            )
        ),
    ]
    return "\n\n".join(parts)


def main() -> None:
    """Measures the sweep where none is named, replays it, and writes the page."""
    machine = page.machine()
    if len(sys.argv) > 1:
        directory = Path(sys.argv[1])
        command = f".venv/bin/python bench/advice.py {sys.argv[1]}"
    else:
        directory, command = OUT, "make bench-advice"
        subprocess.run([FARLINK, "lab", "profile", str(PLAN), "--out", str(OUT)], check=False)
    sweep = Sweep(directory)
    plans = {str(record.fields["lab"]["plan"]) for runs in sweep.records.values() for record in runs}
    days = {record.started[:10] for runs in sweep.records.values() for record in runs}
    called = f"`plans/{', '.join(sorted(plans))}.toml` of {', '.join(sorted(days))}"
    parts = [body(sweep, called=called)]
    page.write(
        Path(__file__).with_suffix(".md"),
        title="Does advice from 15% of a sweep find what the whole sweep finds?",
        question="A sweep that was measured is replayed: `farlink lab search` chooses its probes among the "
        "sweep's runs, and `farlink lab advise` answers for an RTT at which nothing was probed.",
        command=command,
        machine=machine,
        body="\n\n".join(parts),
    )


if __name__ == "__main__":
    main()
