"""A sweep that was measured, to be replayed: what reached how much of the best, and probes drawn from it."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

from farlink_lab.choice import Choice, Task
from farlink_lab.ground import Ground, Place, ground
from farlink_lab.records import read_records
from farlink_lab.search import Search

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from farlink_lab.records import Record

# Halvings of a cell's runs.
HALVINGS = 40
Spot = tuple[Choice, float]


class Sweep:
    """A sweep of ours, by configuration and RTT.

    Attributes:
        ground: All of it.
        probed: What its probes do; `None` where it has no sizes to hold out.
        sizes: What is asked for at every RTT: sizes that no probe does; empty where it has none.
        records: The runs that may be probes.

    """

    def __init__(self, stood: Ground, probed: Task | None = None) -> None:
        """Probes do `probed` alone."""
        self.ground, self.probed = stood, probed
        self.sizes = tuple(size for size in common_sizes(stood) if size != probed) if probed else ()
        self.all = {(place.choice, place.rtt_s): place.records for place in stood.places}
        self.records = {
            spot: tuple(run for run in runs if not probed or probed.is_of(run))
            for spot, runs in self.all.items()
        }
        self.runs = sum(map(len, self.records.values()))

    def tasks(self, rtt_s: float) -> tuple[Task, ...]:
        """What is asked for at an RTT: the sizes, or the longest that runs did there."""
        if self.sizes:
            return self.sizes
        ran = [run.amount for (_, rtt), runs in self.all.items() if rtt == rtt_s for run in runs]
        return (Task(mode="duration", amount=max(ran)),)

    def rates_bps(self, rtt_s: float, task: Task) -> dict[Choice, list[float]]:
        """The runs of each configuration at one RTT that did `task`; where none did, all."""
        found = {}
        for choice in self.ground.choices:
            runs = [run for run in self.all.get((choice, rtt_s), ()) if run.throughput_bps]
            runs = [run for run in runs if task.is_of(run)] or runs
            if runs:
                found[choice] = [rate for run in runs if (rate := run.throughput_bps)]
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


def sweeps(directory: Path) -> list[Sweep]:
    """The sweep of a directory, once for each size that probes may do."""
    stood = ground(read_records(directory / "records.jsonl").records)
    sizes = common_sizes(stood)
    return [Sweep(stood, probed=size) for size in sizes] if len(sizes) > 1 else [Sweep(stood)]


def common_sizes(ground: Ground) -> list[Task]:
    """The sizes that every configuration moved, growing."""
    moved: dict[Choice, set[float]] = {}
    for place in ground.places:
        sizes = {run.amount for run in place.records if run.mode == "size"}
        moved.setdefault(place.choice, set()).update(sizes)
    return [Task(mode="size", amount=size) for size in sorted(set.intersection(*moved.values()))]


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
            if spot[1] != held_out and runs
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
        worth = {
            spot: search.gains(doublings(probes.task, runs[-1]))[
                choices.index(spot[0]), probes.rtts.index(spot[1])
            ]
            / (runs[-1].duration_s or 1.0)
            for spot, runs in probes.left.items()
        }
        probes.take(max(worth, key=lambda spot: worth[spot]))
        search.learn(probes.ground.observations(probes.task))
        yield


def doublings(task: Task, run: Record) -> float:
    """log2 of how many times as much as `task` a run did."""
    done = task.done_by(run)
    return task.doublings(done) if done else 0.0


def scattered(probes: Probes) -> Iterator[None]:
    """Takes probe after probe at random."""
    while probes.left:
        probes.take(probes.draw.choice(list(probes.left)))
        yield
