"""Does advice from 15% of a sweep find what the whole sweep finds? Writes bench/advice.md.

Replays sweeps that were measured: `bench/advice.py DIR…`, or without DIR the one of `plans/variants.toml`
(about an hour and a quarter, which it measures first where that was not done; it goes on where it was
interrupted). An RTT is held out; among the others `farlink lab search` chooses its probes, each a run of the
sweep; `farlink lab advise` answers for the RTT that was held out, and what it advises is compared with the
best of all configurations there.

Which is best is chosen by one half of the runs and judged, as what was advised is, by the other: the highest
of several medians of a few noisy runs lies above what its own configuration reaches again.
"""

from __future__ import annotations

import itertools
import math
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
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from farlink_lab.records import Record
    from numpy.typing import NDArray

PLAN = ROOT / "plans" / "variants.toml"
OUT = ROOT / "target" / "bench-advice"
# The bars of the question.
SHARE, GOOD, OFTEN = 0.15, 0.95, 0.90
SEEDS = 20
# Of the sweep's runs, for the curve.
SHARES = (0.03, 0.06, 0.09, 0.12, SHARE)
# Halvings of a cell's runs.
HALVINGS = 40
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
    """One answer: what was advised reaches so much of the best.

    Attributes:
        rtt_s: That was held out.
        task: That was asked for.
        seed: Of the draw of runs.
        ratio: By `Sweep.reach`.
        naive: By `Sweep.naive_reach`.

    """

    rtt_s: float
    task: Task
    seed: int
    ratio: float
    naive: float


class Sweep:
    """A sweep of ours, by configuration and RTT."""

    def __init__(self, directory: Path) -> None:
        """Reads its records."""
        self.ground = ground(read_records(directory / "records.jsonl").records)
        self.records = {(place.choice, place.rtt_s): place.records for place in self.ground.places}
        self.runs = sum(map(len, self.records.values()))

    def rates_bps(self, rtt_s: float, task: Task) -> dict[Choice, list[float]]:
        """The runs of each configuration at one RTT, as they tell of `task`."""
        found = {}
        for choice in self.ground.choices:
            told = [
                known for run in self.records.get((choice, rtt_s), ()) if (known := converted_bps(run, task))
            ]
            rates = [rate for rate, by_course in told if not by_course] or [rate for rate, _ in told]
            if rates:
                found[choice] = rates
        return found

    def reach(self, rtt_s: float, task: Task) -> dict[Choice, float]:
        """How much of the best each configuration reaches at one RTT.

        The runs of each are halved, the best is chosen by one half, and both are judged by the other; the
        geometric mean over `HALVINGS`. A lone run is in both halves, which flatters the best.
        """
        rates = self.rates_bps(rtt_s, task)
        draw = random.Random(f"{rtt_s} {task}")
        ratios: dict[Choice, list[float]] = {choice: [] for choice in rates}
        for _ in range(HALVINGS):
            halves = {choice: halved(own, draw) for choice, own in rates.items()}
            best = max(halves, key=lambda choice: halves[choice][0])
            for choice, (_, judged) in halves.items():
                ratios[choice].append(math.log(judged / halves[best][1]))
        return {choice: math.exp(sum(own) / len(own)) for choice, own in ratios.items()}

    def naive_reach(self, rtt_s: float, task: Task) -> dict[Choice, float]:
        """Likewise against the highest median of all runs, by which each is judged, too."""
        medians = {choice: median(own) for choice, own in self.rates_bps(rtt_s, task).items()}
        return {choice: rate / max(medians.values()) for choice, rate in medians.items()}


def halved(rates: Sequence[float], draw: random.Random) -> tuple[float, float]:
    """Medians of two halves; of a lone run, itself twice."""
    if len(rates) < 2:
        return rates[0], rates[0]
    mixed = draw.sample(list(rates), len(rates))
    middle = len(mixed) // 2 + (len(mixed) % 2 and draw.randrange(2))
    return median(mixed[:middle]), median(mixed[middle:])


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


def searched(probes: Probes) -> Iterator[None]:
    """Takes probe after probe as `farlink lab search` does."""
    choices = probes.sweep.ground.choices
    search = Search(choices=choices, rtts_s=probes.rtts, task=probes.task, wire=probes.sweep.ground.measured)
    while probes.left:
        gains = search.gains()
        worth = {
            spot: gains[choices.index(spot[0]), probes.rtts.index(spot[1])] / (runs[-1].duration_s or 1.0)
            for spot, runs in probes.left.items()
        }
        probes.take(max(worth, key=lambda spot: worth[spot]))
        search.learn(probes.ground.observations(probes.task))
        yield


def scattered(probes: Probes) -> Iterator[None]:
    """Takes probe after probe at random."""
    while probes.left:
        probes.take(probes.draw.choice(list(probes.left)))
        yield


def advised(probes: Probes, rtt_s: float) -> Choice | None:
    """What is advised by the probes; `None` where they tell nothing."""
    stood = probes.ground
    try:
        rates = Adviser(stood, probes.task).throughput_bps(rtt_s)
    except AdviceError:
        return None
    return stood.choices[int(np.argmax(rates))]


def cases(
    sweep: Sweep, choose: Callable[[float, Task, int], Mapping[int, Choice | None]], *, seeds: int = SEEDS
) -> dict[int, list[Case]]:
    """What `choose` gives for every inner RTT, task and seed, by the number of probes."""
    found: dict[int, list[Case]] = {}
    for rtt in map(float, sweep.ground.rtt_s[1:-1]):
        for task in TASKS:
            reach, naive = sweep.reach(rtt, task), sweep.naive_reach(rtt, task)
            for seed in range(seeds):
                for count, choice in choose(rtt, task, seed).items():
                    ratio, plain = (told.get(choice, 0.0) if choice else 0.0 for told in (reach, naive))
                    case = Case(rtt_s=rtt, task=task, seed=seed, ratio=ratio, naive=plain)
                    found.setdefault(count, []).append(case)
    return found


def by_probes(
    sweep: Sweep, take: Callable[[Probes], Iterator[None]], counts: Collection[int]
) -> Callable[[float, Task, int], Mapping[int, Choice | None]]:
    """Advice from so many probes, taken so; the fewer are the first of the more."""

    def choose(rtt_s: float, task: Task, seed: int) -> Mapping[int, Choice | None]:
        probes = Probes(sweep, held_out=rtt_s, task=task, seed=seed)
        taken = itertools.islice(take(probes), max(counts))
        return {count: advised(probes, rtt_s) for count, _ in enumerate(taken, 1) if count in counts}

    return choose


def by_model(sweep: Sweep) -> Callable[[float, Task, int], Mapping[int, Choice | None]]:
    """The model alone; where it has several as the best, one of them by chance."""

    def choose(rtt_s: float, task: Task, seed: int) -> Mapping[int, Choice | None]:
        wire, choices = sweep.ground.measured, sweep.ground.choices
        rates = [float(expected_bps(each, np.array([rtt_s]), task=task, wire=wire)[0]) for each in choices]
        best = [each for each, rate in zip(choices, rates, strict=True) if rate >= max(rates) * 0.9999]
        return {0: random.Random(f"{seed} {rtt_s} {task}").choice(best)}

    return choose


def reached(found: Sequence[Case]) -> float:
    """The share of answers that reach the bar."""
    return float(np.mean([case.ratio >= GOOD for case in found]))


def interval(found: Sequence[Case], less: Sequence[Case] = ()) -> tuple[float, float]:
    """A 95% bootstrap interval of `reached`, or of what is left of it after `less`' share.

    Draws are drawn again, and held-out RTTs: answers at one RTT stand and fall together.
    """
    random_ = np.random.default_rng(1)
    seeds = sorted({case.seed for case in found})
    rtts = sorted({case.rtt_s for case in found})

    def table(answers: Sequence[Case]) -> NDArray[np.float64]:
        return np.array(
            [[reached([c for c in answers if (c.seed, c.rtt_s) == (s, r)]) for r in rtts] for s in seeds]
        )

    shares = table(found) - (table(less) if less else 0.0)
    drawn = [
        shares[np.ix_(random_.choice(len(seeds), len(seeds)), random_.choice(len(rtts), len(rtts)))].mean()
        for _ in range(RESAMPLES)
    ]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(low), float(high)


def row(name: str, runs: str, found: Sequence[Case]) -> list[str]:
    """One way to choose, with its interval."""
    low, high = interval(found)
    ratios = [case.ratio for case in found]
    naive = float(np.mean([case.naive >= GOOD for case in found]))
    return [
        name,
        runs,
        f"{100 * reached(found):.0f}% ({100 * low:.0f}-{100 * high:.0f})",
        f"{100 * naive:.0f}%",
        f"{median(ratios):.3f}",
        f"{min(ratios):.3f}",
        str(len(found)),
    ]


def fixed(sweep: Sweep) -> list[list[str]]:
    """Every configuration, if it were always taken: how hard the question is."""
    found = [
        (choice, cases(sweep, lambda _rtt, _task, _seed, choice=choice: {0: choice}, seeds=1)[0])  # type: ignore[misc]
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
    """What the page says of one sweep."""
    spots, counted = len(sweep.records), sweep.ground
    few, more = int(SHARE * spots), int(SHARE * sweep.runs)
    counts = sorted({few, *(int(share * sweep.runs) for share in SHARES)})
    searches = cases(sweep, by_probes(sweep, searched, counts))
    at_random = cases(sweep, by_probes(sweep, scattered, counts))
    rows = [
        *(row("search", f"{count} ({100 * count / sweep.runs:.1f}%)", searches[count]) for count in counts),
        *(row("probes at random", f"{count}", at_random[count]) for count in (few, more)),
        row("the model alone", "0", cases(sweep, by_model(sweep))[0]),
        *fixed(sweep),
    ]
    late = sum(record.overrun for runs in sweep.records.values() for record in runs)
    lone = sum(len(runs) == 1 for runs in sweep.records.values())
    held = len(counted.rtt_s) - 2
    verdicts = ["holds" if reached(searches[count]) >= OFTEN else "does not hold" for count in (few, more)]
    low, high = interval(searches[more], searches[few])
    sweep_said = (
        f"The sweep: {called}; {len(counted.choices)} configurations of `farlink` at "
        f"{len(counted.rtt_s)} RTTs are {spots} cells, {sweep.runs} runs that count, {late} of them late. "
        f"{lone} cells have a lone run."
    )
    bar = (
        f"Bar: what is advised reaches {100 * GOOD:.0f}% of the best in {100 * OFTEN:.0f}% of the answers, "
        f"from probes of at most {100 * SHARE:.0f}%. Of the cells, a run a probe, that is {few} probes: **it "
        f"{verdicts[0]}**. Of the runs that is {more}: **it {verdicts[1]}**. More probes: "
        f"{100 * (reached(searches[more]) - reached(searches[few])):+.0f} points from {few} to {more} "
        f"({100 * low:+.0f} to {100 * high:+.0f}, paired by draw and RTT)."
    )
    method = (
        f"Each of the {held} inner RTTs is held out in turn: no probe is there. Asked is for "
        f"{', '.join(task.shown for task in TASKS)}, with {SEEDS} draws of which run of a cell a probe sees."
    )
    parts = [
        sweep_said,
        bar,
        method,
        page.table(
            ["chosen by", "probes (of runs)", "reach 95%", "naively", "median of best", "worst", "answers"],
            rows,
        ),
        *(
            table
            for count in (few, more)
            for table in (
                split(
                    searches[count], f"held-out RTT, {count} probes", lambda case: f"{1e3 * case.rtt_s:g} ms"
                ),
                split(searches[count], f"task, {count} probes", lambda case: case.task.shown),
            )
        ),
    ]
    return "\n\n".join(parts)


METHOD = (
    "Which configuration is best at the held-out RTT is chosen by one half of the runs there, and both it "
    f"and what was advised are judged by the other; the geometric mean over {HALVINGS} halvings must be "
    f"{100 * GOOD:.0f}%. *Naively* is against the highest median of all runs, which is too high: it is the "
    "highest of several by luck, too. A run of another size or duration tells of the one asked by its two "
    "phases, for what is advised and for the best alike: sizes test the choice here, and not the conversion. "
    "Intervals are of 95%, by a bootstrap over the draws and over the held-out RTTs, as answers at one RTT "
    "stand and fall together: they say what luck in the probes and in the RTTs does, not what another "
    "machine's sweep would."
)


def main() -> None:
    """Measures the sweep where none is named, replays it, and writes the page."""
    machine = page.machine()
    directories = [Path(name) for name in sys.argv[1:]]
    command = " ".join([".venv/bin/python bench/advice.py", *sys.argv[1:]])
    if not directories:
        directories, command = [OUT], "make bench-advice"
        subprocess.run([FARLINK, "lab", "profile", str(PLAN), "--out", str(OUT)], check=False)
    parts = [METHOD]
    for directory in directories:
        sweep = Sweep(directory)
        records = [record for runs in sweep.records.values() for record in runs]
        plans = sorted({str(record.fields["lab"]["plan"]) for record in records})
        begun = min(record.started for record in records)[:16].replace("T", " ")
        parts += [
            f"## The sweep of {begun}",
            body(sweep, called=f"`plans/{', '.join(plans)}.toml`, begun at {begun} (UTC)"),
        ]
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
